"""A change that containerd does not accept is tried once, and again only where something is different. On a
fake node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverctl import cli
from driverforge_core.errors import CommandFailed, UsageError
from driverforge_host.adapters.services import SystemdServices
from driverforge_host.ports import Host, bytes_of
from driverforge_toolkit.app.configure_runtime import RuntimeAction, change_runtime, plan_of
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import change, plans, refused, restore, runtime_status
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from support.fakes.fakecontainerd import CONFIG, DROP_IN, ROOT, FakeContainerd
from support.fakes.fakehost import NODE, FakeCommands, FakeNode, fake_node


@dataclass
class Picky(FakeContainerd):
    """It does not come up with a drop-in of ours, and needs `slow` seconds of the node's clock without."""

    picky: bool = True
    slow: float = 0.0

    def restart(self) -> None:
        super().restart()
        self.down = self.picky and self.node.host.node.exists(DROP_IN)
        if self.slow and not self.down and self.starts > 1:
            up = self.node.clock.time + self.slow
            self.down = True
            self.node.clock.on_wait = lambda now: setattr(self, "down", now < up)


@dataclass
class Bench:
    node: FakeNode
    daemon: Picky
    request: RuntimeRequest

    @property
    def system(self) -> RuntimeSystem:
        return RuntimeSystem(host=self.node.host, sockets=self.daemon, request=self.request)

    def pod(self, *, force: bool = False) -> str:
        """The apply of a pod's start: what it says, and how often it restarted containerd."""
        before = self.daemon.starts
        try:
            change_runtime(self.system, RuntimeAction.APPLY, lambda plan: None, force=force)
        except CommandFailed as error:
            said = f"{error.brief}; {'; '.join(error.details)}; {error.resolution}"
        else:
            said = "applied"
        return f"{self.daemon.starts - before} restarts: {said}"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    node = fake_node(tmp_path, gpu=False)
    request = RuntimeRequest(wanted=wanted_handlers(), restart_command="restart", patience=5.0)
    return Bench(node=node, daemon=Picky(node=node), request=request)


def test_a_refused_change_is_not_tried_at_the_next_pods_start(bench: Bench) -> None:
    said = bench.pod()
    assert said.startswith("2 restarts: containerd did not accept the change")
    assert "--patience" not in said, "it came back at once with its old files"
    assert "it had 5 s to answer" in said
    assert "message above" not in said, "there is none: nobody knows its log"
    assert "see containerd's own log" in said
    for _ in range(3):
        said = bench.pod()
        assert said.startswith("0 restarts: containerd did not accept this change on ")
        assert "nothing answers at " in said, "what it said then"
        assert "--force" in said
    assert bench.node.host.node.read_bytes(CONFIG) == ROOT
    plan = plan_of(bench.system, RuntimeAction.APPLY)
    assert plan is not None
    assert "did not accept this change on" in plan.notes[-1]


def test_the_status_tells_what_was_refused_until_a_change_is_accepted(bench: Bench) -> None:
    assert runtime_status.runtime_status(bench.system)["refused"] is None
    bench.pod()
    found = runtime_status.runtime_status(bench.system)
    said = found["refused"]["said"]
    assert any("nothing answers at " in line for line in said)
    text = runtime_status.status_text(found)
    assert f"did not accept on {found['refused']['when']}:\n  {said[0]}\n" in text
    assert "--force" in text
    bench.daemon.picky = False
    bench.pod(force=True)
    found = runtime_status.runtime_status(bench.system)
    assert found["refused"] is None
    assert "did not accept" not in runtime_status.status_text(found)


class PickyOfNames(Picky):
    """It does not come up with a handler `gpu`."""

    def restart(self) -> None:
        super().restart()
        self.down = b"gpu" in (bytes_of(self.node.host.node, DROP_IN) or b"")


def test_a_revert_ends_what_was_refused(bench: Bench) -> None:
    """Nobody tries it again: status and doctor would tell of it for ever."""
    bench.daemon = PickyOfNames(node=bench.node)
    assert bench.pod() == "1 restarts: applied"
    other_handlers(bench)
    assert bench.pod().startswith("2 restarts: containerd did not accept the change")
    assert runtime_status.runtime_status(bench.system)["refused"] is not None
    change_runtime(bench.system, RuntimeAction.REVERT, lambda plan: None)
    assert runtime_status.runtime_status(bench.system)["refused"] is None


def other_handlers(bench: Bench) -> None:
    bench.request = replace(bench.request, wanted=wanted_handlers(name="gpu"))


def more_patience(bench: Bench) -> None:
    bench.request = replace(bench.request, patience=6.0)


def another_restart_command(bench: Bench) -> None:
    bench.request = replace(bench.request, restart_command="restart it otherwise")


def newer_version(bench: Bench) -> None:
    bench.daemon.version = "1.7.25"


def other_root_file(bench: Bench) -> None:
    bench.node.host.node.write_atomic(CONFIG, ROOT + b"# theirs\n")


def other_imported_file(bench: Bench) -> None:
    """It is none of the plan's, and containerd reads it all the same."""
    files = bench.node.host.node
    files.write_atomic("/etc/containerd/theirs.toml", b"version = 2\noom_score = 7\n")


@pytest.mark.parametrize(
    "change_something",
    [
        other_handlers,
        more_patience,
        another_restart_command,
        newer_version,
        other_root_file,
        other_imported_file,
    ],
)
def test_it_is_tried_again_where_something_is_different(
    bench: Bench, change_something: Callable[[Bench], None]
) -> None:
    files = bench.node.host.node
    files.write_atomic(CONFIG, b'imports = ["/etc/containerd/theirs.toml"]\n' + ROOT)
    files.write_atomic("/etc/containerd/theirs.toml", b"version = 2\n")
    assert bench.pod().startswith("2 restarts")
    assert bench.pod().startswith("0 restarts")
    change_something(bench)
    assert bench.pod().startswith("2 restarts")


def test_it_is_tried_again_with_force_and_forgotten_once_it_is_accepted(bench: Bench) -> None:
    bench.pod()
    assert bench.pod(force=True).startswith("2 restarts")
    bench.daemon.picky = False
    assert bench.pod().startswith("0 restarts")
    assert bench.pod(force=True) == "1 restarts: applied"
    assert bench.node.host.node.list_dir(refused.FOLDER) == ()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', '{"schema": 2, "digest": "x"}'])
def test_a_record_that_cannot_be_read_does_not_count(bench: Bench, text: str) -> None:
    bench.pod()
    (name,) = bench.node.host.node.list_dir(refused.FOLDER)
    bench.node.host.node.write_atomic(f"{refused.FOLDER}/{name}", text.encode())
    assert bench.pod().startswith("2 restarts")


def test_a_record_of_a_later_release_does_not_count(bench: Bench) -> None:
    bench.pod()
    (name,) = bench.node.host.node.list_dir(refused.FOLDER)
    text = bench.node.host.node.read_text(f"{refused.FOLDER}/{name}")
    later = text.replace('"schema": 1', '"schema": 2')
    bench.node.host.node.write_atomic(f"{refused.FOLDER}/{name}", later.encode())
    assert bench.pod().startswith("2 restarts")


@dataclass
class Attached(FakeContainerd):
    """It does not come up without our drop-in any more."""

    def restart(self) -> None:
        super().restart()
        self.down = self.starts > 2 and not self.node.host.node.exists(DROP_IN)


def test_a_revert_is_tried_each_time(tmp_path: Path) -> None:
    node = fake_node(tmp_path, gpu=False)
    daemon = Attached(node=node)
    request = RuntimeRequest(wanted=wanted_handlers(), restart_command="restart", patience=1.0)
    system = RuntimeSystem(host=node.host, sockets=daemon, request=request)
    change.carry_out(plans.apply_plan(system), system)
    for starts in (4, 6):
        plan = plans.revert_plan(system)
        assert plan is not None
        with pytest.raises(CommandFailed, match="the old configuration is in force again"):
            change.carry_out(plan, system)
        assert daemon.starts == starts


def test_a_daemon_that_is_down_with_its_old_files_too_has_refused_nothing(bench: Bench) -> None:
    dead = replace(bench.system, request=replace(bench.request, restart_command="restart"))
    plan = plans.apply_plan(dead)
    bench.daemon.slow = 1000.0
    with pytest.raises(CommandFailed, match="does not answer with the old configuration either"):
        change.carry_out(plan, dead)
    assert bench.node.host.node.list_dir(refused.FOLDER) == ()


@dataclass
class Slow(FakeContainerd):
    """Its start takes so long that the node restores meanwhile; it likes our files all the same."""

    def restart(self) -> None:
        super().restart()
        for armed in self.node.places[NODE].glob(f"{restore.FOLDER[1:]}/*/armed"):
            armed.rename(armed.parent / "restored")


def test_a_change_that_took_too_long_was_not_refused(tmp_path: Path) -> None:
    node = fake_node(tmp_path, gpu=False)
    request = RuntimeRequest(wanted=wanted_handlers(), restart_command="restart", patience=5.0)
    system = RuntimeSystem(host=node.host, sockets=Slow(node=node), request=request)
    with pytest.raises(CommandFailed) as caught:
        change.carry_out(plans.apply_plan(system), system)
    assert "the node has put the old configuration back by itself" in caught.value.details
    assert node.host.node.list_dir(refused.FOLDER) == ()


def test_force_is_a_word_for_apply(tmp_path: Path) -> None:
    def host() -> Host:
        return fake_node(tmp_path, gpu=False).host

    with pytest.raises(UsageError, match="--force belongs to apply"):
        cli.run(["runtime", "revert", "--force"], host)


# --- a daemon that starts slowly


def test_a_patience_that_the_daemon_needs_nearly_itself_is_named(bench: Bench) -> None:
    bench.daemon.slow = 4.0
    said = bench.pod()
    assert "with its old files it answered after 4 s, and the patience is 5 s" in said
    assert "--patience 12, or TOOLKIT_PATIENCE" in said


@pytest.mark.parametrize(
    ("asked", "last", "patience", "warns"),
    [(0.0, 10.0, 60, False), (0.0, 50.0, 100, False), (5.0, 10.0, 5, True), (20.0, 10.0, 20, False)],
)
def test_the_patience_is_compared_with_the_units_last_start(
    bench: Bench,
    caplog: pytest.LogCaptureFixture,
    asked: float,
    last: float,
    patience: float,
    warns: bool,
) -> None:
    bench.node.services.started_in = last
    bench.daemon.unit = "containerd.service"
    request = replace(bench.request, patience=asked, restart_mode="systemd")
    system = replace(bench.system, request=request)
    begun = bench.node.clock.monotonic()
    with caplog.at_level("WARNING", "driverforge"), pytest.raises(CommandFailed):
        change.carry_out(plans.apply_plan(system), system)
    assert (bench.node.clock.monotonic() - begun) // 1 == patience
    assert any("shorter than the runtime's last start" in line for line in caplog.messages) is warns


SHOWN = "InactiveExitTimestampMonotonic=4210000\nActiveEnterTimestampMonotonic=6460000\n"


@pytest.mark.parametrize(
    ("shown", "seconds"),
    [
        (SHOWN, 2.25),
        ("", 0.0),
        (SHOWN.replace("6460000", "0"), 0.0),  # it never came up
        (SHOWN.replace("6460000", "n/a"), 0.0),
    ],
)
def test_systemd_tells_what_a_start_took(shown: str, seconds: float) -> None:
    commands = FakeCommands(programs={"systemctl": lambda words: (0, shown, "")})
    assert SystemdServices(commands).start_seconds("containerd.service") == seconds
    assert SystemdServices(FakeCommands()).start_seconds("containerd.service") == 0.0
