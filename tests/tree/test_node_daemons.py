"""Daemons of a loaded driver on a fake node: started, restarted, reported, told from users, stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_core.errors import CommandFailed, InUse, StorageFailed
from driverforge_driver.commands import init, unload
from driverforge_driver.driver.converge import converge
from driverforge_driver.state import paths
from driverforge_driver.state.daemons import PERSISTENCED
from driverforge_driver.state.facts import Goal, WantedDriver
from driverforge_driver.state.observe import observe
from driverforge_driver.state.records import RunningDaemon, record_daemons
from driverforge_driver.state.wanted_driver import read_wanted
from driverforge_host import probe
from support.fakes.fakefiles import FakeFiles
from support.fakes.fakehost import FakeNode, FakeProcess, fake_node
from support.samples.arguments import arguments


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = fake_node(tmp_path)
    made.clock.stop_at = made.clock.time + 20  # SIGTERM, some supervision rounds after it is ready
    return made


def ready(node: FakeNode) -> WantedDriver:
    """Bring the node to Ready, as `init` does before it waits."""
    wanted = read_wanted(node.host, Goal.SERVE)
    converge(node.host, wanted)
    return wanted


class Persistenced:
    """nvidia-persistenced as it behaves: it forks away, writes its PID file, holds a device; or fails."""

    def __init__(self, node: FakeNode, *, fails: bool = False) -> None:
        self.node, self.fails, self.starts = node, fails, 0
        node.commands.daemons["nvidia-persistenced"] = self.start

    def start(self) -> int:
        self.starts += 1
        child, pid = 9000 + 2 * self.starts, 9001 + 2 * self.starts
        self.node.processes.ended[child] = 1 if self.fails else 0
        folder = PERSISTENCED.pid_file.rpartition("/")[0]
        self.node.files.make_dirs(folder)
        self.node.files.make_dirs("/var/log")
        if self.fails:
            self.node.files.write_atomic(
                PERSISTENCED.log,
                b"nvidia-persistenced failed to initialize. Check syslog for more details.\n",
            )
        else:
            self.node.processes.add(
                FakeProcess(pid=pid, command="nvidia-persistenced", holds=("/dev/nvidiactl",))
            )
            self.node.files.write_atomic(PERSISTENCED.pid_file, f"{pid}\n".encode())
        return child


def test_persistenced_runs_with_the_driver_and_goes_before_it(node: FakeNode) -> None:
    daemon = Persistenced(node)
    seen: list[object] = []

    def look(_: float) -> None:
        if (status := node.text(paths.STATUS)) and probe.field(status, "phase") == "ready":
            seen.append(json.loads(status)["daemons"])

    node.clock.on_wait = look
    assert init.run(arguments(), node.host) == 0
    assert seen[-1] == [{"name": "nvidia-persistenced", "pid": 9003, "failures": 0, "problem": ""}]
    assert daemon.starts == 1
    assert node.processes.terminated == [9003]
    assert not [name for name in node.kernel.loaded_modules if name.startswith("nvidia")]
    assert not node.files.exists(paths.STATE)


def test_a_daemon_that_dies_is_started_again(node: FakeNode) -> None:
    daemon = Persistenced(node)
    node.clock.stop_at = node.clock.time + 60

    def kill_once(_: float) -> None:
        if daemon.starts == 1:
            node.processes.running.pop(9003, None)

    node.clock.on_wait = kill_once
    assert init.run(arguments(), node.host) == 0
    assert daemon.starts == 2


def test_a_daemon_that_never_comes_up_is_reported_and_not_fatal(node: FakeNode) -> None:
    daemon = Persistenced(node, fails=True)
    node.clock.stop_at = node.clock.time + 120
    problems: list[str] = []

    def look(_: float) -> None:
        if (status := node.text(paths.STATUS)) and (daemons := json.loads(status)["daemons"]):
            problems.append(f"{json.loads(status)['phase']}: {daemons[0]['problem']}")

    node.clock.on_wait = look
    assert init.run(arguments(), node.host) == 0
    assert (
        problems[-1]
        == "ready: exit status 1: nvidia-persistenced failed to initialize. Check syslog for more details."
    )
    assert 3 <= daemon.starts <= 8  # ever less often


def test_a_daemon_of_a_run_that_was_killed_is_no_user_and_is_stopped_for_a_reload(node: FakeNode) -> None:
    wanted = ready(node)
    Persistenced(node).start()
    record_daemons(node.host, (RunningDaemon(name=PERSISTENCED.name, pid=9003),))
    assert observe(node.host, wanted).holders == ()
    converge(node.host, replace(wanted, digest="another"))
    assert node.processes.terminated == [9003]
    assert node.text(paths.DIGEST) == "another\n"


def test_a_daemon_that_does_not_end_stops_the_reload_before_anything_is_unloaded(node: FakeNode) -> None:
    wanted = ready(node)
    Persistenced(node).start()
    record_daemons(node.host, (RunningDaemon(name=PERSISTENCED.name, pid=9003),))
    node.processes.stubborn.add(9003)
    node.kernel.calls.clear()
    with pytest.raises(CommandFailed, match="did not end within"):
        converge(node.host, replace(wanted, digest="another"))
    assert node.kernel.calls == []


def test_a_stop_signal_while_a_daemon_forks_away_does_not_make_it_a_user(node: FakeNode) -> None:
    forked = FakeProcess(pid=9003, command="nvidia-persistenced", holds=("/dev/nvidiactl",))

    def start() -> int:
        """The signal comes, then the daemon opens the device, and its PID file is the last that it does."""
        begin = node.clock.stop_at = node.clock.time

        def go_on(now: float) -> None:
            if now >= begin + 0.5:
                node.processes.add(forked)
            if now >= begin + 1:
                node.files.write_atomic(PERSISTENCED.pid_file, b"9003\n")
                node.clock.on_wait = lambda _: None

        node.files.make_dirs(PERSISTENCED.pid_file.rpartition("/")[0])
        node.clock.on_wait = go_on
        return 9002

    node.commands.daemons["nvidia-persistenced"] = start
    assert init.run(arguments(), node.host) == 0
    assert node.processes.terminated == [9003]
    assert not [name for name in node.kernel.loaded_modules if name.startswith("nvidia")]


def test_no_daemon_is_started_after_a_stop_signal(node: FakeNode) -> None:
    daemon = Persistenced(node)

    def stop_when_published(now: float) -> None:
        if paths.ROOT in node.places:
            node.clock.stop_at = now

    node.clock.on_wait = stop_when_published
    assert init.run(arguments(), node.host) == 0
    assert daemon.starts == 0


def test_a_daemon_that_cannot_be_started_is_reported_and_not_fatal(node: FakeNode) -> None:
    problems: list[str] = []

    def refused() -> int:
        raise CommandFailed("cannot start nvidia-persistenced: Read-only file system")

    def look(_: float) -> None:
        if (status := node.text(paths.STATUS)) and (daemons := json.loads(status)["daemons"]):
            problems.append(daemons[0]["problem"])

    node.commands.daemons["nvidia-persistenced"] = refused
    node.clock.on_wait = look
    assert init.run(arguments(), node.host) == 0
    assert problems[-1] == "cannot start nvidia-persistenced: Read-only file system"
    assert not [name for name in node.kernel.loaded_modules if name.startswith("nvidia")]


def test_ready_comes_after_the_daemon_runs(node: FakeNode) -> None:
    daemon = Persistenced(node)
    ready(node)
    assert daemon.starts == 1
    assert observe(node.host, read_wanted(node.host, Goal.SERVE)).daemons == (
        RunningDaemon(name="nvidia-persistenced", pid=9003),
    )
    ready(node)
    assert daemon.starts == 1


def test_a_daemon_that_fails_is_a_warning_and_the_driver_ready(node: FakeNode) -> None:
    daemon = Persistenced(node, fails=True)
    done = converge(node.host, read_wanted(node.host, Goal.SERVE))
    said = "exit status 1: nvidia-persistenced failed to initialize. Check syslog for more details."
    assert done.warnings == (f"nvidia-persistenced does not run: {said}",)
    assert node.text(paths.DAEMONS_STATUS) == "Ready\n"
    assert daemon.starts == 1


def test_a_failed_start_stops_the_daemon_that_it_started(node: FakeNode) -> None:
    Persistenced(node)

    class Failing(FakeFiles):
        """A node whose /run/nvidia cannot be written any more when the driver is to be ready."""

        def write_atomic(self, path: str, data: bytes, *, mode: int | None = None) -> None:
            if data == b"Ready\n":
                raise StorageFailed(f"no space left while writing {path}")
            super().write_atomic(path, data, mode=mode)

    node.files = Failing(node.places, node.files.fuse)
    with pytest.raises(StorageFailed):
        init.run(arguments(), node.host)
    assert node.processes.terminated == [9003]
    assert not [name for name in node.kernel.loaded_modules if name.startswith("nvidia")]


def test_load_starts_no_daemon(node: FakeNode) -> None:
    daemon = Persistenced(node)
    converge(node.host, read_wanted(node.host, Goal.LOAD))
    assert daemon.starts == 0


def test_a_user_whom_nobody_sees_is_told_from_our_daemon_while_it_runs(node: FakeNode) -> None:
    """A process of another PID namespace: only the reference count shows it."""
    Persistenced(node)
    ready(node)
    visible = node.kernel.references
    node.kernel.references = lambda: [*visible(), "nvidia"]
    with pytest.raises(InUse) as caught:
        unload.run(arguments(), node.host)
    assert caught.value.details == ("module nvidia has 1 references that no visible process explains",)
    assert node.processes.terminated == []
    node.kernel.references = visible
    assert unload.run(arguments(), node.host) == 0
    assert node.processes.terminated == [9003]
