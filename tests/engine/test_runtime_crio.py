"""driverctl on a live node whose runtime is a stand-in for CRI-O: no registry that tests can reach has CRI-O.

The stand-in follows CRI-O's source (`support.fakes.crioconfig`, `support.fakes.standincrio`); all else is
real: process, socket, files, journal, the restore on the node, restarts.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomllib

from driverctl import cli
from driverforge_core.errors import DriverforgeError, Unavailable
from driverforge_host.adapters.real import real_host
from driverforge_host.adapters.sockets import UnixSockets
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.find import cri
from support.fakes.standincrio import SAYS
from support.machines.cripods import encode
from support.machines.killednode import marks, with_a_victim
from support.machines.runtimenode import NAMES, RuntimeNode, open_node, round_trip
from support.process import missing, run, until
from support.skipping import provided

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="driverctl changes the node's runtime as root"),
    pytest.mark.skipif(bool(missing("bash", "unshare", "setsid")), reason="starts a daemon of its own"),
]

# what a vanilla package of CRI-O installs (cri-o/packaging, 10-crio.conf): crun, where nobody else looks
PACKAGED = """[crio.image]
signature_policy = "/etc/crio/policy.json"

[crio.runtime]
default_runtime = "crun"

[crio.runtime.runtimes.crun]
runtime_path = "{bin}/crun"
runtime_root = "/run/crun"
monitor_path = "{bin}/conmon"
allowed_annotations = ["io.containers.trace-syscall"]
"""
VERSIONS = ("1.21.0", "1.23.0", "1.25.0", "1.29.1", "1.31.2", "1.35.0")
OLDER, NEWER = "1.29.1", "1.31.2"  # before and after the runtime interface lists handlers


@pytest.fixture
def version() -> str:
    return NEWER


@pytest.fixture
def node(version: str, tmp_path: Path) -> Iterator[RuntimeNode]:
    """A node with the toolkit's programs, and a storage of its own for pods."""
    with provided(lambda: open_node("crio", version)) as made:
        toolkit = made.home / "toolkit"
        toolkit.mkdir()
        for program in programs(made).values():
            Path(program).write_text("#!/bin/sh\n")
        made.options = ["--toolkit-dir", str(toolkit)]
        yield made


def programs(node: RuntimeNode) -> dict[str, str]:
    return {
        name: f"{node.home}/toolkit/nvidia-container-runtime{end}"
        for name, end in zip(NAMES, ("", ".cdi", ".legacy"), strict=True)
    }


def packaged(node: RuntimeNode) -> dict[str, str]:
    return {
        "crio.conf.d/10-crio.conf": PACKAGED.format(bin=node.program.parent),
        "crio.conf.d/20-storage.conf": f'[crio]\nroot = "{node.home}/storage"\n',
    }


def failure(node: RuntimeNode, action: str, *more: str) -> DriverforgeError:
    """The error that driverctl ends with."""
    with pytest.raises(DriverforgeError) as caught:
        cli.run(node.words(action, *more), real_host)
    return caught.value


class Pods:
    """Pods of the stand-in: nothing but their files, and the handler that it ends them with."""

    def __init__(self, node: RuntimeNode) -> None:
        self.node = node

    def ask(self, method: str, message: bytes) -> bytes:
        with UnixSockets().connect(self.node.socket, timeout=10) as connection:
            return cri.call(connection, method, message)

    def run(self, name: str, handler: str) -> str:
        pod = {1: {1: name, 2: uuid.uuid4().hex, 3: "default"}}
        (identity,) = cri.texts(self.ask("RunPodSandbox", encode({1: pod, 2: handler})), 1)
        return identity

    def end(self, identity: str) -> None:
        for method in ("StopPodSandbox", "RemovePodSandbox"):
            self.ask(method, encode({1: identity}))


@pytest.mark.parametrize("version", VERSIONS)
def test_apply_and_revert_by_what_each_release_reads_prints_and_answers(
    node: RuntimeNode, version: str
) -> None:
    pods = Pods(node)

    def a_pod_gets_the_handler() -> None:
        pods.end(pods.run("gpu", "nvidia"))
        found = tomllib.loads(node.drop_in.read_text())["crio"]["runtime"]["runtimes"]["nvidia"]
        assert found == {
            "runtime_path": programs(node)["nvidia"],
            "runtime_type": "oci",
            "runtime_root": "/run/crun",
            "monitor_path": f"{node.program.parent}/conmon",
            "allowed_annotations": ["io.containers.trace-syscall"],
        }

    round_trip(node, "", packaged(node), programs=programs(node), meanwhile=a_pod_gets_the_handler)
    assert SAYS in node.log.read_text()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_built_in_default_counts_although_it_is_printed_as_a_comment_or_not_at_all(
    node: RuntimeNode, version: str
) -> None:
    node.start("")
    node.driverctl("apply")
    nvidia = tomllib.loads(node.drop_in.read_text())["crio"]["runtime"]["runtimes"]["nvidia"]
    assert nvidia["runtime_root"] == ("/run/crun" if version >= "1.31" else "/run/runc")
    node.driverctl("revert")
    assert not node.drop_in.exists()


def test_a_drop_in_folder_is_enough(node: RuntimeNode) -> None:
    """No root file anywhere: the daemon is told of none, and looks at its usual places."""
    round_trip(node, None, packaged(node), programs=programs(node))


@pytest.mark.parametrize("version", [OLDER])
def test_handlers_that_are_not_listed_are_believed(
    node: RuntimeNode, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    node.program.write_text(node.program.read_text().replace("export ", "export STAND_IN_SILENT=1 "))
    node.start("", packaged(node))
    with UnixSockets().connect(node.socket, timeout=10) as connection:
        assert cri.handlers(cri.call(connection, "Status", cri.VERBOSE)) == ({}, "")
    node.driverctl("apply")
    Pods(node).run("gpu", "nvidia")
    node.driverctl("apply")
    assert node.restarts() == 1
    capsys.readouterr()
    node.driverctl("status", "--json")
    assert json.loads(capsys.readouterr().out)["missing"] == []


def test_the_root_file_that_it_reads_counts_although_the_operator_names_another(node: RuntimeNode) -> None:
    """NVIDIA's operator says config.toml and 99-nvidia.conf of every CRI-O."""
    root = f'[crio]\nroot = "{node.home}/storage"\n[crio.runtime]\ndefault_runtime = "runc"\n'
    root += '[crio.runtime.runtimes.runc]\nruntime_root = "/run/other"\n'
    node.start(root, {"config.toml": "not = [read"})
    theirs = node.drop_in.with_suffix(".conf")
    node.options += ["--config", str(node.etc / "config.toml"), "--drop-in", str(theirs)]
    node.driverctl("apply")
    nvidia = tomllib.loads(theirs.read_text())["crio"]["runtime"]["runtimes"]["nvidia"]
    assert nvidia["runtime_root"] == "/run/other"
    assert Path(journal.path_of("crio", str(node.config))).exists()
    node.driverctl("revert")
    assert not theirs.exists()


def test_a_drop_in_that_it_would_not_read_is_refused(node: RuntimeNode) -> None:
    node.start("", packaged(node))
    elsewhere = node.etc / "conf.d/99-nvidia.conf"
    error = failure(node, "apply", "--drop-in", str(elsewhere))
    assert "does not read" in error.brief
    assert any(str(node.drop_in.parent) in line for line in error.details)
    assert (node.restarts(), elsewhere.exists()) == (0, False)


def test_a_handler_without_its_program_is_refused_before_anything_is_written(node: RuntimeNode) -> None:
    """CRI-O's own check accepts it; its start leaves the handler out, or fails."""
    node.start("", packaged(node))
    files = node.snapshot()
    Path(programs(node)["nvidia"]).unlink()
    error = failure(node, "apply", "--default")
    assert "leaves out a handler whose program is not there" in error.brief
    assert (node.snapshot(), node.restarts()) == (files, 0)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("[crio.runtime", "unable to decode"),
        ('[crio.runtime]\ndefault_runtime = "kata"\n', "no runtime entry table"),
        ("[crio.runtime]\ndefault_runtime = 1\n", "unable to decode"),
    ],
)
def test_files_that_it_refuses_are_told_in_its_own_words(node: RuntimeNode, broken: str, says: str) -> None:
    node.start("", packaged(node))
    node.write(None, {"crio.conf.d/zz-theirs.conf": broken})
    error = failure(node, "apply")
    assert says in "\n".join((error.brief, *error.details)) or "not valid TOML" in error.brief
    assert node.restarts() == 0


def test_a_change_that_does_not_come_up_is_taken_back(node: RuntimeNode) -> None:
    node.start("", packaged(node))
    before, files = node.handlers(), node.snapshot()
    # what no check can see: the program is gone when it starts
    node.write_restart(after=f"rm -f {programs(node)['nvidia']}")
    error = failure(node, "apply", "--default", "--patience", "3")
    assert error.brief == "crio did not accept the change; the old configuration is in force again"
    assert node.snapshot() == files
    assert node.handlers() == before
    Path(programs(node)["nvidia"]).write_text("")
    again = failure(node, "apply", "--default", "--patience", "3")
    assert "and all is as it was then" in again.brief
    assert node.restarts() == 2


def test_it_is_restarted_for_pods_do_not_get_what_a_reload_brings(node: RuntimeNode) -> None:
    """cri-o/cri-o#10202."""
    node.start("", packaged(node))
    pods = Pods(node)
    text = f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{programs(node)["nvidia"]}"\n'
    node.write(None, {"crio.conf.d/50-theirs.conf": text})
    run("kill", "-HUP", str(node.pid))
    until(lambda: "nvidia" in node.handlers(), "the reload", log=node.log)
    with pytest.raises(Unavailable) as caught:
        pods.run("gpu", "nvidia")
    assert "failed to find runtime handler nvidia" in caught.value.details[0]
    node.driverctl("apply")
    assert node.restarts() == 1
    pods.run("gpu", "nvidia")


def test_a_revert_keeps_the_handlers_that_pods_need_until_they_are_gone(
    node: RuntimeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    """cri-o/cri-o#9521, NVIDIA/nvidia-container-toolkit#1360: such pods stayed in Terminating."""
    node.start("", packaged(node))
    before, files, pods = node.handlers(), node.snapshot(), Pods(node)
    node.driverctl("apply", "--default")
    plain, gpu = pods.run("plain", ""), pods.run("gpu", "nvidia")
    capsys.readouterr()
    node.driverctl("revert")
    assert "the handler nvidia stays" in capsys.readouterr().out
    assert node.handlers() == {**before, "nvidia": programs(node)["nvidia"]}
    assert node.answers() == cri.RuntimeStatus(
        pid=node.pid, name="cri-o", version=NEWER, handlers=node.handlers(), default="crun"
    )
    restarts = node.restarts()
    node.driverctl("revert")
    assert node.restarts() == restarts, "nothing new to do"
    for pod in (plain, gpu):
        pods.end(pod)
    node.driverctl("revert")
    assert node.snapshot() == files
    assert node.handlers() == before
    assert not node.journal.exists()


def test_another_name_for_the_handler_keeps_the_old_one_for_its_pods(
    node: RuntimeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.start("", packaged(node))
    node.driverctl("apply")
    pods = Pods(node)
    gpu = pods.run("gpu", "nvidia")
    node.driverctl("apply", "--runtime-name", "gpu")
    assert "when they are gone, `driverctl runtime apply` takes it out" in capsys.readouterr().out
    assert {"gpu", *NAMES} <= node.handlers().keys()
    pods.end(gpu)
    node.driverctl("apply", "--runtime-name", "gpu")
    assert "nvidia" not in node.handlers()
    node.driverctl("revert")


def test_handlers_of_others_that_pods_need_are_not_stripped(node: RuntimeNode) -> None:
    theirs = "".join(
        f'[crio.runtime.runtimes.{name}]\nruntime_path = "{program}"\n'
        for name, program in programs(node).items()
    )
    node.start("", {**packaged(node), "crio.conf.d/99-nvidia.toml": theirs})
    pods = Pods(node)
    gpu = pods.run("gpu", "nvidia-cdi")
    node.driverctl("revert", "--strip")
    assert node.handlers().keys() & set(NAMES) == {"nvidia-cdi"}
    pods.end(gpu)
    node.driverctl("revert", "--strip")
    assert not node.handlers().keys() & set(NAMES)
    assert not node.drop_in.exists()


def test_a_default_of_its_command_line_wins_over_files(node: RuntimeNode) -> None:
    """`--default-runtime` of the daemon that runs: the handler takes after that one."""
    root = '[crio.runtime]\ndefault_runtime = "runc"\n[crio.runtime.runtimes.runc]\nruntime_root = "/run/r"\n'
    node.start(root, packaged(node))
    script = node.home / "restart"
    script.write_text(script.read_text().replace("--listen", "--default-runtime=runc --listen"))
    run(script)
    until(lambda: node.answers() is not None, "crio", log=node.log)
    node.driverctl("apply")
    nvidia = tomllib.loads(node.drop_in.read_text())["crio"]["runtime"]["runtimes"]["nvidia"]
    assert nvidia["runtime_root"] == "/run/r"
    node.driverctl("revert")


def test_a_hang_up_is_no_way_to_restart_it(node: RuntimeNode) -> None:
    node.start("", packaged(node))
    words = [word for word in node.words("apply", "--restart-mode", "signal") if word != "--restart-command"]
    words.remove(str(node.home / "restart"))
    with pytest.raises(DriverforgeError) as caught:
        cli.run(words, real_host)
    assert "--restart-command" in caught.value.resolution
    assert not node.drop_in.exists()


def test_a_daemon_that_is_down_is_brought_back_with_a_word_on_its_pods(
    node: RuntimeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.start("", packaged(node))
    files = node.snapshot()
    node.driverctl("apply")
    Pods(node).run("gpu", "nvidia-cdi")
    node.stop()
    capsys.readouterr()
    node.driverctl("revert")
    assert "CRI-O cannot stop the pods that use it (default/gpu)" in capsys.readouterr().out
    assert node.snapshot() == files
    assert node.answers() is not None


def test_killed_while_it_is_down_the_node_starts_it_with_the_old_files(node: RuntimeNode) -> None:
    node.start("", packaged(node))
    before, files = node.handlers(), node.snapshot()
    once = node.home / "once"
    once.touch()
    with_a_victim(node, f"if rm {once} 2>/dev/null; then kill -9 $victim; exit 1; fi")
    until(lambda: node.answers() is not None, "crio", timeout=60, log=node.log)
    until(lambda: bool(marks("restored")), "the restore", timeout=60)
    assert (node.snapshot(), node.handlers()) == (files, before)
    node.driverctl("apply")
    assert set(node.handlers()) >= set(NAMES)
    node.driverctl("revert")
