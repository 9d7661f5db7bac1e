"""What a rehearsal's output says, and what files alone say of the next start of containerd.

The lines are those of Debian's 1.6.20 and 2.1.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from driverforge_host.ports import Result
from driverforge_toolkit.runtime.backends.containerd_config import CRI_V2, CRI_V3
from driverforge_toolkit.runtime.backends.rehearsal import BEGINS, LEFT_OUT, Rehearsal, verdict
from driverforge_toolkit.runtime.backends.start_rules import missing_imports, start_faults, stating_lines
from support.fakes.fakehost import fake_node
from support.fakes.runtimemodel import as_files, daemon

LOADING = (
    'time="2026-11-27T10:01:26Z" level=info msg="loading plugin \\"io.containerd.grpc.v1.cri\\"..." type=x\n'
)
BOOTED = 'time="2026-11-27T10:01:26Z" level=info msg="containerd successfully booted in 0.2s"\n'
GONE = "/etc/spec.json: open /etc/spec.json: no such file or directory"
FAILED_1 = (
    'time="2026-11-27T10:01:26Z" level=warning msg="failed to load plugin io.containerd.grpc.v1.cri" '
    f'error="failed to create CRI service: {GONE}"\n'
)
FAILED_2 = (
    'time="2026-11-27T10:01:26Z" level=warning msg="failed to load plugin" error="unable to load CRI runtime '
    f'service plugin dependency: a \\"b\\": {GONE}" id=io.containerd.grpc.v1.cri type=io.containerd.grpc.v1\n'
)
OTHER = (
    'time="2026-11-27T10:01:26Z" level=warning msg="failed to load plugin" error="no loopback" '
    "id=io.containerd.snapshotter.v1.far type=io.containerd.snapshotter.v1\n"
)


def outcome(log: str, *, said: str = f"{BEGINS}\n", error: str = "", status: int = 0) -> Rehearsal:
    return verdict(Result(argv=("unshare",), status=status, stdout=said + log, stderr=error))


@pytest.mark.parametrize(
    ("log", "faults"),
    [
        (LOADING + OTHER + BOOTED, ()),
        (LOADING + FAILED_1 + BOOTED, (f"failed to create CRI service: {GONE}",)),
        (LOADING + FAILED_2 + BOOTED, (f'a "b": {GONE}',)),
        ("containerd: open /etc/site.toml: no such file or directory\n",) * 2,
        (BOOTED, ("it starts without its CRI plugin",)),
    ],
)
def test_a_verdict_has_the_daemons_own_words(log: str, faults: tuple[str, ...] | str) -> None:
    expected = (faults.strip(),) if isinstance(faults, str) else faults
    assert outcome(log) == Rehearsal(faults=expected)


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ("", "it ended without a word"),
        (LOADING, LOADING.strip()),
        (
            f"{LOADING}{FAILED_1}{BOOTED}".replace(GONE, "mkdir /etc/cni: read-only file system"),
            "failed to create CRI service: mkdir /etc/cni: read-only file system",
        ),
        (
            'x level=fatal msg="Failed to run CRI service" error="no"\n',
            'x level=fatal msg="Failed to run CRI service" error="no"',
        ),
    ],
)
def test_what_may_come_of_its_surroundings_is_no_verdict(log: str, why: str) -> None:
    assert outcome(log) == Rehearsal(no_verdict=why)


def test_a_rehearsal_that_did_not_begin_is_no_verdict() -> None:
    error = "unshare: unshare failed: Operation not permitted\n"
    assert outcome("", said="", error=error, status=1) == Rehearsal(no_verdict=error.strip())
    assert outcome("", said="", status=7) == Rehearsal(no_verdict="it ended with 7")


def test_nri_and_shared_stores_stay_out() -> None:
    """NRI starts the programs of its folder, and each of these stores is one for the whole node."""
    names = {name.rpartition(".")[2] for name in LEFT_OUT}
    assert {"nri", "devmapper", "zfs", "btrfs", "blockfile", "erofs"} <= names


def view(section: tuple[str, ...], inner: Mapping[str, object]) -> dict[str, object]:
    return {section[0]: {section[1]: inner}}


def test_a_spec_that_is_gone_or_no_json_is_a_fault(tmp_path: Path) -> None:
    node = fake_node(tmp_path).host.node
    spec = {"containerd": {"runtimes": {"kata": {"base_runtime_spec": "/etc/spec.json"}}}}
    gone = ("base_runtime_spec: /etc/spec.json is not there",)
    assert start_faults(node, view(CRI_V3, spec), live=True) == gone
    assert start_faults(node, view(CRI_V3, spec), live=False) == (), "a dump without /etc"
    node.make_dirs("/etc")
    assert start_faults(node, view(CRI_V3, spec), live=False) == gone
    node.write_atomic("/etc/spec.json", b"{")
    assert start_faults(node, view(CRI_V2, spec), live=True)[0].startswith(
        "base_runtime_spec: /etc/spec.json is not JSON"
    )
    node.write_atomic("/etc/spec.json", b"{}")
    assert start_faults(node, view(CRI_V2, spec), live=True) == ()


def test_registries_are_told_in_one_way_only(tmp_path: Path) -> None:
    node = fake_node(tmp_path).host.node
    images = ("plugins", "io.containerd.cri.v1.images")
    both = {"config_path": "/x", "mirrors": {"a": {}}, "configs": {"b": {"tls": {"ca_file": "/c"}}, "c": {}}}
    said = tuple(
        f"`{key}` cannot be set when `config_path` is provided" for key in ("mirrors", "configs.b.tls")
    )
    for section in (CRI_V2, images):
        assert start_faults(node, view(section, {"registry": both}), live=True) == said
        assert start_faults(node, view(section, {"registry": {**both, "config_path": ""}}), live=True) == ()
        assert (
            start_faults(node, view(section, {"registry": {"config_path": "/x", "mirrors": {}}}), live=True)
            == ()
        )


def test_imports_by_name_have_to_be_there(tmp_path: Path) -> None:
    node = fake_node(tmp_path).host.node
    files = as_files(
        {
            "/etc/containerd/config.toml": b'imports = ["a.toml", "conf.d/*.toml", "/etc/gone.toml"]',
            "/etc/containerd/a.toml": b'imports = ["b.toml"]',
            "/etc/containerd/b.toml": None,
        }
    )
    assert missing_imports(node, daemon(), files) == {
        "/etc/gone.toml": "/etc/containerd/config.toml",
        "/etc/containerd/b.toml": "/etc/containerd/a.toml",
    }


def test_the_lines_that_name_what_a_fault_names() -> None:
    files = as_files(
        {
            "/c.toml": b'version = 2\n# "/etc/spec.json"\nx = "/etc/spec.json"\n\ny = "/etc/spec.json.old"\n',
            "/d.toml": b'[registry.mirrors."x"]\nmirrorsome = 1\n',
        }
    )
    assert stating_lines(files, [GONE]) == ('/c.toml:3: x = "/etc/spec.json"',)
    assert stating_lines(files, ["`mirrors` cannot be set"]) == ('/d.toml:1: [registry.mirrors."x"]',)
    assert stating_lines(files, ["it starts without its CRI plugin"]) == ()
