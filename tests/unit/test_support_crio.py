"""The stand-in for CRI-O against what CRI-O's own tests and issues say that it does.

Sources are named at each test: cri-o/cri-o, where nothing else is said.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import tomllib

from support.fakes.crioconfig import CrioConfig, Refusal, Version

THEIRS = '[crio.runtime]\ndefault_runtime = "{0}"\n[crio.runtime.runtimes.{0}]\nruntime_path = "{1}"\n'


def config(folder: Path, version: Version, **files: str) -> CrioConfig:
    for name, text in files.items():
        (folder / f"{name}.conf").write_text(text)
    return CrioConfig.loaded(version, None, folder)


def test_files_count_in_their_order_and_those_of_sub_folders_too(tmp_path: Path) -> None:
    """--config-dir in internal/criocli/criocli.go; filepath.Walk."""
    (tmp_path / "20-b.conf.d").mkdir()
    (tmp_path / "20-b.conf.d" / "any-name").write_text('[crio.runtime]\ndefault_runtime = "b"\n')
    (tmp_path / "10-a.conf").write_text('[crio.runtime]\ndefault_runtime = "a"\n')
    assert CrioConfig.loaded((1, 31), None, tmp_path).default == "b"
    (tmp_path / "30-c").write_text('[crio.runtime]\ndefault_runtime = "c"\n')
    assert CrioConfig.loaded((1, 31), None, tmp_path).default == "c"


def test_a_later_file_replaces_a_whole_runtime(tmp_path: Path) -> None:
    """The TOML decoder of pkg/config/config.go, UpdateFromDropInFile."""
    first = '[crio.runtime.runtimes.x]\nruntime_path = "/a"\nmonitor_path = "/m"\n'
    found = config(tmp_path, (1, 31), a=first, b='[crio.runtime.runtimes.x]\nruntime_root = "/r"\n')
    assert found.runtimes["x"] == {"runtime_root": "/r"}


@pytest.mark.parametrize(("version", "name"), [((1, 30, 9), "runc"), ((1, 31, 0), "crun")])
def test_the_built_in_default(version: Version, name: str) -> None:
    """Release notes of 1.31.0."""
    assert CrioConfig.built_in(version).default == name


@pytest.mark.parametrize(
    ("version", "uncommented", "comments"),
    [((1, 20, 0), True, False), ((1, 22, 0), False, False), ((1, 31, 0), False, True)],
)
def test_how_a_default_is_printed(version: Version, uncommented: bool, comments: bool) -> None:
    """Issues #4506 and #4770, pull request #5007."""
    built_in = CrioConfig.built_in(version)
    shown = built_in.printed()
    assert ("default_runtime" in tomllib.loads(shown)["crio"]["runtime"]) is uncommented
    assert ("# default_runtime" in shown) is comments
    everything = tomllib.loads(built_in.printed(everything=True))["crio"]["runtime"]
    assert everything["default_runtime"] == built_in.default
    assert everything["runtimes"][built_in.default]["runtime_type"] == "oci"


def test_a_default_without_a_table_is_refused_by_both_checks(tmp_path: Path) -> None:
    """pkg/config/config_test.go, "should fail on wrong DefaultRuntime"."""
    found = config(tmp_path, (1, 31), a='[crio.runtime]\ndefault_runtime = "kata"\n')
    with pytest.raises(Refusal, match=r"no runtime entry table \[crio.runtime.runtimes.kata\]"):
        found.validate(on_execution=False)


@pytest.mark.parametrize(("version", "refused"), [((1, 20, 7), True), ((1, 21, 0), False)])
def test_a_broken_runtime_that_is_not_the_default_is_ignored(
    tmp_path: Path, version: Version, refused: bool
) -> None:
    """Pull request #4631."""
    found = config(
        tmp_path,
        version,
        a=THEIRS.format("x", "/bin/sh"),
        b='[crio.runtime.runtimes.y]\nruntime_path = "/no"\n',
    )
    found.runtimes.pop(CrioConfig.built_in(version).default)
    found.validate(on_execution=False)
    if refused:
        with pytest.raises(Refusal, match="invalid runtime_path for runtime 'y'"):
            found.validate(on_execution=True)
        return
    found.validate(on_execution=True)
    assert list(found.runtimes) == ["x"]
    assert 'Runtime handler "y" is being ignored' in found.warnings[0]


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ('runtime_path = "/no"', "invalid runtime_path"),
        ('runtime_path = "/bin/sh"\nruntime_type = "io.containerd.runc.v2"', "invalid `runtime_type`"),
        ('runtime_path = "/bin/sh"\nmonitor_path = "/no/conmon"', "invalid conmon path"),
        ('runtime_path = "/bin/sh"\nruntime_config_path = "/etc/passwd"', "only be used with the 'vm'"),
        ("", "not found in"),
    ],
)
def test_a_broken_default_does_not_start(tmp_path: Path, key: str, says: str) -> None:
    """pkg/config/config_test.go, Describe("RuntimeHandler")."""
    text = f'[crio.runtime]\ndefault_runtime = "no-such"\n[crio.runtime.runtimes.no-such]\n{key}\n'
    found = config(tmp_path, (1, 31), a=text)
    found.validate(on_execution=False)
    with pytest.raises(Refusal, match=says):
        found.validate(on_execution=True)


@pytest.mark.parametrize(
    ("version", "takes"),
    [((1, 25, 0), False), ((1, 25, 1), True), ((1, 26, 0), True), ((1, 24, 6), False)],
)
def test_which_release_takes_runtimes_over_at_a_reload(tmp_path: Path, version: Version, takes: bool) -> None:
    """Pull requests #6056 and #6270."""
    running = config(tmp_path, version, a=THEIRS.format("x", "/bin/sh"))
    running.runtimes.pop(CrioConfig.built_in(version).default)
    newer = config(tmp_path, version, b='[crio.runtime.runtimes.y]\nruntime_path = "/bin/sh"\n')
    running.reloaded(newer)
    assert ("y" in running.runtimes) is takes


@pytest.mark.parametrize("text", ["[crio", "crio = 1\n", "[crio.runtime]\ndefault_runtime = 1\n", "\x00"])
def test_what_it_cannot_decode(tmp_path: Path, text: str) -> None:
    with pytest.raises(Refusal, match="unable to decode configuration"):
        config(tmp_path, (1, 31), a=text)
