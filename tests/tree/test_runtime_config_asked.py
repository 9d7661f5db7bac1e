"""The configuration file that somebody names, beside the one that the daemon reads: on a fake node, whose
containerd has a real folder.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_core.errors import InputError, Unsupported
from driverforge_toolkit.runtime.backends import config_files, containerd
from driverforge_toolkit.runtime.find.daemon import check_config_is_read
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import change, plans, runtime_status
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from support.fakes.fakecontainerd import BINARY, CONFIG, DROP_IN, ROOT, FakeContainerd
from support.fakes.fakehost import fake_node
from support.fakes.runtimemodel import as_bytes

KOPS = "/etc/containerd/config-kops.toml"


@pytest.fixture
def daemon(tmp_path: Path) -> FakeContainerd:
    return FakeContainerd(node=fake_node(tmp_path, gpu=False))


def system(daemon: FakeContainerd, config: str, **more: str) -> RuntimeSystem:
    request = RuntimeRequest(
        wanted=wanted_handlers(),
        config=config,
        drop_in=DROP_IN,
        restart_command="restart",
        given={"config": "RUNTIME_CONFIG"},
    )
    asked = replace(request, **more)  # type: ignore[arg-type]
    return RuntimeSystem(host=daemon.node.host, sockets=daemon, request=asked)


def started_with(daemon: FakeContainerd, *words: str) -> None:
    daemon.node.host.node.write_atomic(
        f"/proc/{daemon.pid}/cmdline", "\0".join((BINARY, *words, "")).encode()
    )


@pytest.mark.parametrize("config", [CONFIG, "/etc/containerd/yet-to-be-made.toml"])
def test_a_file_that_the_daemon_does_not_read_is_refused_before_anything_is_done(
    daemon: FakeContainerd, config: str
) -> None:
    """As kOps starts it, with the RUNTIME_CONFIG that the operator sets."""
    daemon.node.host.node.write_atomic(KOPS, ROOT)
    started_with(daemon, "-c", KOPS)
    with pytest.raises(Unsupported, match=f"does not read {config}") as caught:
        plans.apply_plan(system(daemon, config))
    assert list(caught.value.details) == [
        f"PID {daemon.pid} reads {KOPS} (-config of its command line)",
        f"RUNTIME_CONFIG says {config}",
    ]
    assert f"set it to {KOPS}" in caught.value.resolution
    for look in (plans.revert_plan, plans.strip_plan, runtime_status.runtime_status):
        with pytest.raises(Unsupported, match="does not read"):
            look(system(daemon, config))
    assert daemon.starts == 1


def test_a_default_that_is_not_the_named_file_is_refused_too(daemon: FakeContainerd) -> None:
    with pytest.raises(Unsupported, match="does not read") as caught:
        plans.apply_plan(system(daemon, KOPS))
    assert f"PID {daemon.pid} reads {CONFIG} (its built-in default)" in caught.value.details


@pytest.mark.parametrize("link", ["file", "folder", "folder of a file to be"])
def test_another_name_of_the_same_file_is_taken(daemon: FakeContainerd, link: str) -> None:
    node = daemon.node.host.node
    if link == "file":
        node.symlink(CONFIG, KOPS)
        config = KOPS
    else:
        node.symlink("/etc/containerd", "/etc/other")
        config = "/etc/other/config.toml"
    if link == "folder of a file to be":
        node.remove(CONFIG)
    assert plans.apply_plan(system(daemon, config)).daemon.config == config


def test_what_was_written_to_a_file_is_taken_back_when_the_daemon_reads_another_one_by_now(
    daemon: FakeContainerd,
) -> None:
    asks, node = system(daemon, CONFIG), daemon.node.host.node
    change.carry_out(plans.apply_plan(asks), asks)
    node.write_atomic(KOPS, ROOT)
    started_with(daemon, "-c", KOPS)
    with pytest.raises(Unsupported, match="does not read"):
        plans.apply_plan(asks)
    plan = plans.revert_plan(asks)
    assert plan is not None
    change.carry_out(plan, asks)
    assert (node.read_bytes(CONFIG), node.exists(DROP_IN)) == (ROOT, False)


@pytest.mark.parametrize("name", ["config.toml.tmpl", "config-v3.toml.tmpl", "containerd-template.toml"])
def test_a_template_stands_for_the_file_that_is_made_of_it(daemon: FakeContainerd, name: str) -> None:
    plan = plans.apply_plan(system(daemon, f"/etc/containerd/{name}"))
    assert plan.daemon.config == CONFIG
    assert (
        f"configuration: {CONFIG} (its built-in default; it is made of /etc/containerd/{name})"
        in plan.daemon.evidence
    )
    with pytest.raises(Unsupported, match="does not read"):
        plans.apply_plan(system(daemon, f"/elsewhere/{name}"))


def test_a_daemon_whose_files_we_do_not_see_is_believed_of_the_user(daemon: FakeContainerd) -> None:
    node = daemon.node.host.node
    started_with(daemon, "-c", KOPS)
    node.make_dirs("/proc/1/ns")
    node.symlink("mnt:[1]", "/proc/1/ns/mnt")
    node.symlink("mnt:[2]", f"/proc/{daemon.pid}/ns/mnt")
    node.write_atomic("/proc/1/mountinfo", b"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    node.write_atomic(f"/proc/{daemon.pid}/mountinfo", b"21 1 0:77 / / rw - overlay overlay rw\n")
    assert plans.apply_plan(system(daemon, CONFIG)).daemon.config == CONFIG
    node.write_atomic(f"/proc/{daemon.pid}/mountinfo", b"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    with pytest.raises(Unsupported, match="does not read"):
        plans.apply_plan(system(daemon, CONFIG))


def test_a_rootless_docker_has_its_file_in_the_users_home(daemon: FakeContainerd) -> None:
    docker = replace(daemon.daemon, kind="docker", config="/home/user/.config/docker/daemon.json")
    request = system(daemon, docker.config).request
    with pytest.raises(Unsupported, match="does not read"):
        check_config_is_read(daemon.node.host, docker, request)
    daemon.node.host.node.write_atomic(
        f"/proc/{daemon.pid}/environ", b"HOME=/home/user\0ROOTLESSKIT_STATE_DIR=/run/user/1000/x\0"
    )
    check_config_is_read(daemon.node.host, docker, request)


@pytest.mark.parametrize("root", [None, b"version = 3\n"])
def test_a_folder_that_no_file_imports_is_not_read_by_containerd_2_2_either(
    daemon: FakeContainerd, root: bytes | None
) -> None:
    """Its built-in defaults name conf.d, and are not followed: what others left there comes into force with
    our import only.
    """
    node, where = daemon.node.host.node, replace(daemon.daemon, version=(2, 2, 1))
    node.make_dirs("/etc/containerd/conf.d")
    node.write_atomic("/etc/containerd/conf.d/50-site.toml", b"version = 3\n[debug]\nlevel = 'debug'\n")
    node.remove(CONFIG)
    if root is not None:
        node.write_atomic(CONFIG, root)
    files = config_files.read_files(daemon.node.host, where)
    assert as_bytes(files) == {CONFIG: root, DROP_IN: None}
    written = containerd.patched(where, files, {"version": 3}, wanted_handlers())
    assert b'imports = ["/etc/containerd/conf.d/*.toml"]' in (written[CONFIG].data or b"")


@pytest.mark.parametrize("kind", ["a folder", "a link to nothing"])
def test_what_is_no_file_keeps_nobody_from_reading_and_reverting(daemon: FakeContainerd, kind: str) -> None:
    """Only `apply` refuses it: the node may need the revert to come up again."""
    asks, node = system(daemon, CONFIG), daemon.node.host.node
    change.carry_out(plans.apply_plan(asks), asks)
    odd = "/etc/containerd/conf.d/odd.toml"
    if kind == "a folder":
        node.make_dirs(odd)
    else:
        node.symlink("/nowhere", odd)
    with pytest.raises(InputError, match=f"odd.toml is {kind}"):
        plans.apply_plan(asks)
    assert runtime_status.runtime_status(asks)["change"]
    plan = plans.revert_plan(asks)
    assert plan is not None
    change.carry_out(plan, asks)
    assert (node.read_bytes(CONFIG), node.exists(DROP_IN)) == (ROOT, False)
