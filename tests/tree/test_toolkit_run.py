"""The life of `driverctl toolkit run`: one instance, the order of its parts, and what a stop undoes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import driverctl
from driverctl.cli import build_parser
from driverctl.compatible import toolkit_arguments
from driverforge_core.errors import CommandFailed, TemporaryFailure, Unavailable
from driverforge_toolkit.app.toolkit_run import UNINSTALL, RunParts, run_toolkit
from driverforge_toolkit.toolkit import toolkit_status
from driverforge_toolkit.toolkit.releases import Layout
from driverforge_toolkit.toolkit.settings import ToolkitSettings, settings_of
from support.fakes.fakehost import FakeNode, fake_node
from support.samples.toolkitsource import write_source

LAYOUT = Layout(install_dir="/usr/local/nvidia")
FOLDER = "/run/nvidia/toolkit"
PID = f"{FOLDER}/toolkit.pid"


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = fake_node(tmp_path, gpu=False)
    write_source(Path(made.files.real("/artifacts/deb")))
    made.clock.stop_at = made.clock.time + 10
    return made


class Recorder:
    """Parts that note when they were called, and what the node looked like then; nothing is restarted."""

    def __init__(self, node: FakeNode, *, fails: str = "") -> None:
        self.node = node
        self.fails = fails
        self.calls: list[str] = []
        self.parts = RunParts(
            low_level=self.low_level,
            cdi=self.part("cdi"),
            apply=self.apply,
            revert=self.part("revert"),
            watch=self.watch,
        )

    def apply(self) -> bool:
        self.part("apply")()
        return False

    def low_level(self) -> list[str]:
        self.calls.append("low level")
        return ["/opt/bin/crun", "/usr/local/nvidia/toolkit/nvidia-container-runtime"]

    def watch(self) -> str:
        return self.node.clock.wait(3600.0) or "nothing stopped it"

    def part(self, name: str) -> Callable[[], None]:
        def call() -> None:
            assert LAYOUT.current(self.node.host.node), "the toolkit is installed first"
            assert self.node.text(PID).strip().isdigit()
            self.calls.append(f"{name} while {phase(self.node)}")
            if name == self.fails:
                raise CommandFailed(f"{name} failed")

        return call


def phase(node: FakeNode) -> str:
    return str(json.loads(node.text(f"{FOLDER}/{toolkit_status.STATUS_FILE}"))["phase"])


def serve_again(node: FakeNode) -> None:
    """The next pod, which lives as long as the first."""
    assert node.clock.stop_at is not None
    node.clock.stop_at = node.clock.time + 10
    recorder = Recorder(node)
    run_toolkit(node.host, settings(), recorder.parts)
    assert recorder.calls == ["low level", "apply while starting"]


def settings(**flags: str) -> ToolkitSettings:
    return settings_of(flags, {})


def test_a_whole_life(node: FakeNode) -> None:
    seen = []
    node.clock.on_wait = lambda _: (
        seen.append(phase(node)) if node.text(f"{FOLDER}/{toolkit_status.STATUS_FILE}") else None
    )
    recorder = Recorder(node)
    assert run_toolkit(node.host, settings(cdi_enabled="true", revert_on="stop"), recorder.parts) == 0
    assert recorder.calls == [
        "low level",
        "cdi while starting",
        "apply while starting",
        "revert while stopping",
    ]
    assert seen[-1] == "ready"
    assert node.text(PID) == ""
    assert node.text(f"{FOLDER}/{toolkit_status.STATUS_FILE}") == ""
    assert LAYOUT.current(node.host.node), "the files stay: containers run from them"
    text = node.host.node.read_text(LAYOUT.config)
    assert 'runtimes = ["/opt/bin/crun", "runc", "crun"]' in text, "our own wrapper is left out"


def test_a_signal_is_caught_before_anything_is_said_or_installed(node: FakeNode) -> None:
    seen: list[tuple[str, str]] = []
    status = f"{FOLDER}/{toolkit_status.STATUS_FILE}"
    node.clock.on_catch = lambda: seen.append((node.text(status), LAYOUT.current(node.host.node)))
    run_toolkit(node.host, settings(), Recorder(node).parts)
    assert seen == [("", "")]


@pytest.mark.parametrize(
    ("flags", "marker", "reverted"),
    [
        ({}, False, False),  # a pod's replacement
        ({}, True, True),
        ({"revert_on": "stop"}, False, True),
        ({"revert_on": "never"}, True, False),
        ({"revert_on": "stop", "no_runtime_config": "true"}, True, False),
    ],
)
def test_what_a_stop_undoes(node: FakeNode, flags: dict[str, str], marker: bool, reverted: bool) -> None:
    recorder = Recorder(node)
    if marker:
        node.files.make_dirs(FOLDER)
        node.files.write_atomic(f"{FOLDER}/{UNINSTALL}", b"")
    run_toolkit(node.host, settings(**flags), recorder.parts)
    assert ("revert while stopping" in recorder.calls) == reverted
    assert ("apply while starting" in recorder.calls) == ("no_runtime_config" not in flags)


def test_an_uninstall_is_of_one_pod_and_not_of_the_next_ones(node: FakeNode) -> None:
    node.files.make_dirs(FOLDER)
    node.files.write_atomic(f"{FOLDER}/{UNINSTALL}", b"")
    with pytest.raises(CommandFailed, match="revert failed"):
        run_toolkit(node.host, settings(), Recorder(node, fails="revert").parts)
    node.clock.stop_at = node.clock.time + 10
    recorder = Recorder(node)
    run_toolkit(node.host, settings(), recorder.parts)
    assert "revert while stopping" in recorder.calls, "what failed is tried again"
    serve_again(node)


def test_no_daemon_ends_at_once_and_undoes_nothing(node: FakeNode) -> None:
    node.clock.stop_at = None
    recorder = Recorder(node)
    assert run_toolkit(node.host, settings(no_daemon="true", revert_on="stop"), recorder.parts) == 0
    assert recorder.calls == ["low level", "apply while starting"]


def test_a_stop_before_the_runtime_is_touched_leaves_it_alone(node: FakeNode) -> None:
    node.clock.stop_at = node.clock.time
    recorder = Recorder(node)
    assert run_toolkit(node.host, settings(cdi_enabled="true", revert_on="stop"), recorder.parts) == 0
    assert recorder.calls == ["low level"]


def test_a_part_that_fails_ends_it_and_leaves_no_pid_file(node: FakeNode) -> None:
    with pytest.raises(CommandFailed, match="cdi failed"):
        run_toolkit(
            node.host, settings(cdi_enabled="true", revert_on="stop"), Recorder(node, fails="cdi").parts
        )
    assert node.text(PID) == ""
    assert not node.files.exists(f"{FOLDER}/{toolkit_status.STATUS_FILE}")


def test_a_second_instance_is_refused_and_the_firsts_files_are_untouched(node: FakeNode) -> None:
    node.files.make_dirs(FOLDER)
    with node.files.lock(PID, text="77\n") as ours:
        assert ours
        recorder = Recorder(node)
        with pytest.raises(TemporaryFailure) as caught:
            run_toolkit(node.host, settings(), recorder.parts)
        assert caught.value.details == (f"{PID}: 77",)
        assert node.text(PID) == "77\n"
        assert recorder.calls == []
        assert not LAYOUT.current(node.host.node)


def test_a_restart_of_the_pod_writes_no_file_of_the_node(node: FakeNode) -> None:
    run_toolkit(node.host, settings(), Recorder(node).parts)
    top = Path(node.host.node.real(LAYOUT.install_dir))
    before = {path: path.lstat().st_mtime_ns for path in top.rglob("*")}
    serve_again(node)
    assert {path: path.lstat().st_mtime_ns for path in top.rglob("*")} == before


def test_an_upgrade_collects_what_nothing_uses(node: FakeNode) -> None:
    run_toolkit(node.host, settings(), Recorder(node).parts)
    write_source(Path(node.files.real("/artifacts/deb")), programs={"nvidia-ctk": "newer\n"})
    serve_again(node)
    assert node.host.node.list_dir(LAYOUT.releases) == (LAYOUT.current(node.host.node),)


@pytest.mark.parametrize(
    ("argv", "environ", "meaning"),
    [
        ([], {}, ["toolkit", "run", "--revert-on", "stop"]),
        ([], {"TOOLKIT_REVERT_ON": "never"}, ["toolkit", "run"]),
        (
            ["--no-daemon", "-r", "crio"],
            {},
            ["toolkit", "run", "--revert-on", "stop", "--no-daemon", "-r", "crio"],
        ),
        (["--revert-on=never"], {}, ["toolkit", "run", "--revert-on=never"]),
        (["toolkit", "status"], {}, ["toolkit", "status"]),
    ],
)
def test_the_compatible_name(argv: list[str], environ: dict[str, str], meaning: list[str]) -> None:
    assert toolkit_arguments(argv, environ) == meaning
    build_parser("toolkit").parse_args(meaning)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--pid-file=/tmp/x.pid"], "must be toolkit.pid"),
        (["--runtime=podman"], "write one of containerd, crio, docker"),
        (["--enable-nri-plugin"], "NRI mode"),
        (["--no-such-flag"], "unrecognized arguments"),
    ],
)
def test_the_compatible_name_exits_1_with_one_message(tmp_path: Path, words: list[str], says: str) -> None:
    start = "import sys; sys.argv[0] = 'nvidia-toolkit'; from driverctl.cli import main; main()"
    environment = {"PYTHONPATH": str(Path(driverctl.__file__).parents[1]), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", start, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("error: ") == 1
    assert says in done.stderr


def test_without_a_driver_the_cdi_part_says_so(node: FakeNode) -> None:
    from driverforge_toolkit.app.management_spec import write_management_spec

    with pytest.raises(Unavailable):
        write_management_spec(node.host, settings(cdi_enabled="true"), LAYOUT)
