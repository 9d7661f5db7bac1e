"""The steps of a change: what is there before each of them, what is said of it, and what is left in the end.

On a fake node with a containerd or a docker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from driverforge_core.errors import CommandFailed
from driverforge_host.ports import Metadata
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends import candidates
from driverforge_toolkit.runtime.model import Supervisor
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import change, plans, refused, restore
from driverforge_toolkit.runtime.transaction.change_plan import ChangePlan, RuntimeSystem
from driverforge_toolkit.runtime.transaction.restore_script import SCRIPT, UNIT_FOLDER
from support.fakes.fakecontainerd import CONFIG, DROP_IN, ROOT, FakeContainerd
from support.fakes.fakedocker import CONFIG as DAEMON_JSON
from support.fakes.fakedocker import FakeDocker
from support.fakes.fakefiles import FakeFiles
from support.fakes.fakehost import NODE, FakeNode, fake_node

FOLDER = DROP_IN.rpartition("/")[0]


@dataclass(frozen=True)
class Moment:
    """How far the journal and the node's restore are."""

    state: str
    armed: bool
    script: str = field(compare=False)
    unit: str = field(compare=False)  # of the next boot


def moment(node: FakeNode) -> Moment:
    files = node.host.node
    entries = journal.entries(node.host)
    name = entries[0].restore if entries else ""
    here, unit = f"{restore.FOLDER}/{name}", f"{UNIT_FOLDER}/driverforge-boot-{name}.service"
    return Moment(
        state=entries[0].state if entries else "",
        armed=bool(name) and files.exists(f"{here}/armed"),
        script=files.read_text(f"{here}/{SCRIPT}") if files.exists(f"{here}/{SCRIPT}") else "",
        unit=files.read_text(unit) if files.exists(unit) else "",
    )


class Recording(FakeFiles):
    """It notes the moment at each change of a file of the runtime."""

    def __init__(self, node: FakeNode) -> None:
        super().__init__(node.places, node.files.fuse, NODE)
        self.node, self.moments = node, list[Moment]()

    def replace_bytes(
        self, path: str, *, before: bytes | None, after: bytes | None, metadata: Metadata | None = None
    ) -> bool:
        self.moments.append(moment(self.node))
        return super().replace_bytes(path, before=before, after=after, metadata=metadata)


@dataclass
class Watched(FakeContainerd):
    """It notes the moment at each of its restarts. A picky one does not come up with our drop-in."""

    picky: bool = False
    moments: list[Moment] = field(default_factory=list)

    def restart(self) -> None:
        super().restart()
        self.moments.append(moment(self.node))
        self.down = self.picky and self.node.host.node.exists(DROP_IN)


class WatchedDocker(FakeDocker):
    """It notes the moment at each reload."""

    def __init__(self, node: FakeNode) -> None:
        self.moments: list[Moment] = []
        super().__init__(node=node)

    def _reload(self) -> None:
        super()._reload()
        self.moments.append(moment(self.node))


@dataclass
class Bench:
    node: FakeNode
    daemon: Watched

    def system(self, **more: object) -> RuntimeSystem:
        request = RuntimeRequest(wanted=wanted_handlers(), restart_command="restart", patience=1.0)
        return RuntimeSystem(
            host=self.node.host,
            sockets=self.daemon,
            request=replace(request, **more),  # type: ignore[arg-type]
        )

    def apply(self, **more: object) -> ChangePlan:
        system = self.system(**more)
        plan = plans.apply_plan(system)
        change.carry_out(plan, system)
        return plan

    def revert(self) -> ChangePlan:
        plan = plans.revert_plan(self.system())
        assert plan is not None
        change.carry_out(plan, self.system())
        return plan

    def write(self, path: str, text: str) -> None:
        self.node.host.node.make_dirs(path.rpartition("/")[0])
        self.node.host.node.write_atomic(path, text.encode())

    @property
    def armed(self) -> list[tuple[str, ...]]:
        """The calls that had the node watch over us."""
        return [call for call in self.node.commands.calls if call[-1] in ("stay", "once")]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    node = fake_node(tmp_path, gpu=False)
    return Bench(node=node, daemon=Watched(node=node))


def with_systemd(bench: Bench) -> None:
    for folder in ("/run/systemd/system", UNIT_FOLDER):  # sd_booted(3)
        bench.node.host.node.make_dirs(folder)


# --- what is there before each step


def test_journal_and_restore_are_there_before_the_first_write_and_before_the_restart(bench: Bench) -> None:
    files = Recording(bench.node)
    system = replace(bench.system(), host=replace(bench.node.host, node=files))
    change.carry_out(plans.apply_plan(system), system)
    assert [(each.state, each.armed) for each in files.moments] == [("prepared", True)] * 2
    assert [(each.state, each.armed) for each in bench.daemon.moments] == [("", False), ("written", True)]
    [entry] = journal.entries(bench.node.host)
    assert (entry.state, entry.restore, entry.needs) == ("in force", "", "restart")


def test_a_stop_signal_is_caught_before_the_first_write_and_nobody_waits_for_it(bench: Bench) -> None:
    seen: list[bytes | float] = []
    bench.node.clock.on_catch = lambda: seen.append(bench.node.host.node.read_bytes(CONFIG))
    bench.node.clock.on_wait = seen.append
    bench.apply()
    assert seen == [ROOT]


@pytest.mark.parametrize(("unit", "named"), [("", "containerd.service"), ("site.service", "site.service")])
def test_the_next_boot_restores_before_the_unit_of_the_runtime(bench: Bench, unit: str, named: str) -> None:
    with_systemd(bench)
    plan = plans.apply_plan(bench.system())
    supervisor = Supervisor(kind="systemd" if unit else "", unit=unit)
    plan = replace(plan, daemon=replace(plan.daemon, supervisor=supervisor))
    change.carry_out(plan, bench.system())
    assert f"Before={named}\n" in bench.daemon.moments[-1].unit


def test_a_restore_knows_whether_the_runtime_reloads(bench: Bench, tmp_path: Path) -> None:
    bench.apply()
    assert "reloads=no\n" in bench.daemon.moments[-1].script
    docker = WatchedDocker(fake_node(tmp_path / "docker", gpu=False))
    system = replace(bench.system(), host=docker.node.host, sockets=docker)
    change.carry_out(plans.apply_plan(system), system)
    [seen] = docker.moments
    assert (seen.state, seen.armed) == ("written", True)
    assert "reloads=yes\n" in seen.script
    assert b"nvidia" in docker.node.host.node.read_bytes(DAEMON_JSON)


# --- what nobody watches over


def test_a_runtime_that_is_not_restarted_needs_no_restore(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", "driverforge"):
        bench.apply(restart_mode="none")
    assert (bench.armed, bench.daemon.starts) == ([], 1)
    assert any("written, and not in force until the runtime is restarted" in line for line in caplog.messages)
    [entry] = journal.entries(bench.node.host)
    assert (entry.state, entry.fingerprint) == ("written", "")


def test_a_runtime_that_does_not_run_cannot_be_lost_by_starting_it(bench: Bench) -> None:
    bench.apply()
    armed = bench.armed
    assert len(armed) == 1
    bench.daemon.down = True
    plan = bench.revert()
    assert (plan.daemon.pid, plan.why) == (0, "it is not running")
    assert (bench.armed, bench.daemon.down) == (armed, False)


def test_what_only_changes_the_journal_is_in_force_at_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody wrote a comment into a file of ours: there is nothing that the runtime has to be told."""
    bench.apply()
    bench.write(CONFIG, bench.node.host.node.read_text(CONFIG) + "# theirs\n")
    caplog.clear()  # another test may have left a lower level
    with caplog.at_level("WARNING", "driverforge"):
        plan = bench.apply()
    assert (plan.activation, plan.settled, bench.daemon.starts) == ("none", False, 2)
    [entry] = journal.entries(bench.node.host)
    assert (entry.state, entry.earlier) == ("in force", None)
    assert entry.fingerprint
    assert caplog.messages == []


# --- a change that was refused


def test_a_refused_change_is_not_tried_again_unless_somebody_says_so(bench: Bench) -> None:
    bench.daemon.picky = True
    plan, system = plans.apply_plan(bench.system()), bench.system()
    with pytest.raises(CommandFailed, match="did not accept the change; the old configuration"):
        change.carry_out(plan, system)
    starts = bench.daemon.starts
    with pytest.raises(CommandFailed, match="did not accept this change on"):
        change.carry_out(plan, system)
    assert bench.daemon.starts == starts
    bench.daemon.picky = False
    change.carry_out(plan, system, force=True)
    assert bench.node.host.node.list_dir(refused.FOLDER) == ()


# --- what is said


def said(caplog: pytest.LogCaptureFixture, message: str) -> list[str]:
    """The files, or the lines, of the events with that message."""
    fields = [getattr(record, "fields", {}) for record in caplog.records if record.getMessage() == message]
    return [str(each.get("file") or each.get("said")) for each in fields]


def test_each_file_is_said_to_be_written_or_removed(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "driverforge"):
        bench.apply()
    assert (said(caplog, "wrote"), said(caplog, "removed")) == ([DROP_IN, CONFIG], [])
    caplog.clear()
    with caplog.at_level("INFO", "driverforge"):
        bench.revert()
    assert (said(caplog, "wrote"), said(caplog, "removed")) == ([CONFIG], [DROP_IN])


# --- what a revert leaves


def theirs_in_the_folder(bench: Bench) -> None:
    bench.write(f"{FOLDER}/README", "theirs")


def the_folder_is_gone(bench: Bench) -> None:
    bench.node.host.node.remove_tree(FOLDER)


@pytest.mark.parametrize(
    ("meanwhile", "left"),
    [(lambda bench: None, False), (theirs_in_the_folder, True), (the_folder_is_gone, False)],
)
def test_a_folder_that_we_made_goes_with_a_revert_unless_somebody_uses_it(
    bench: Bench, meanwhile: Callable[[Bench], None], left: bool
) -> None:
    bench.apply()
    assert bench.node.host.node.is_dir(FOLDER)
    meanwhile(bench)
    bench.revert()
    assert bench.node.host.node.exists(FOLDER) is left
    assert journal.entries(bench.node.host) == ()


def test_folders_that_were_made_one_in_the_other_go_together(bench: Bench) -> None:
    outer = "/etc/containerd/of/the"
    bench.apply(drop_in=f"{outer}/site/99-nvidia.toml")
    [entry] = journal.entries(bench.node.host)
    assert entry.folders == ("/etc/containerd/of", outer, f"{outer}/site")
    bench.revert()
    assert bench.node.host.node.list_dir("/etc/containerd") == ("config.toml",)


# --- handed over to the node


def test_a_revert_that_is_handed_over_is_in_the_journal_as_one_that_has_begun(bench: Bench) -> None:
    with_systemd(bench)
    bench.daemon.unit = "containerd.service"
    bench.daemon.restart()
    bench.apply(restart_mode="systemd", restart_command="restart")
    [before] = journal.entries(bench.node.host)
    plan = plans.revert_plan(bench.system())
    assert plan is not None
    change.hand_over(plan, bench.system())
    [entry] = journal.entries(bench.node.host)
    assert (entry.state, entry.needs, entry.handlers, entry.earlier) == ("prepared", "restart", (), before)
    [name] = bench.node.host.node.list_dir(restore.FOLDER)
    assert entry.restore == name
    text = bench.node.host.node.read_text(f"{restore.FOLDER}/{name}/{SCRIPT}")
    assert f"\trmdir {FOLDER} " in text
    assert f"journal={journal.path_of('containerd', CONFIG)}\n" in text


# --- after a driverctl that was killed


def test_what_a_killed_driverctl_left_is_taken_over_and_told(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    candidate, here = f"{candidates.FOLDER}/{candidates.PREFIX}x", f"{restore.FOLDER}/1-a"
    bench.write(f"{candidate}/config.toml", "")
    bench.write(f"{here}/restored", "")
    bench.write(f"{here}/log", "put /etc/x back\nrestarted the runtime\n")
    with caplog.at_level("INFO", "driverforge"):
        change.take_over(bench.system())
    assert not bench.node.host.node.exists(candidate)
    assert bench.node.host.node.list_dir(restore.FOLDER) == ()
    lines = said(caplog, "the node's own restore did this before we came")
    assert lines == ["put /etc/x back", "restarted the runtime"]


def test_only_the_file_that_gets_something_back_is_told_of(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    entry = plans.apply_plan(bench.system()).entry
    assert len(entry.files) == 2
    journal.write_entry(bench.node.host, entry)
    [written] = [file.written for file in entry.files if file.path == CONFIG]
    assert written is not None
    folder, _, name = CONFIG.rpartition("/")
    bench.write(CONFIG, written.decode())
    bench.write(f"{folder}/.{name}.driverforge-swap", "of the site\n")
    with caplog.at_level("INFO", "driverforge"):
        change.take_over(bench.system())
    assert said(caplog, "gave the file back what somebody else wrote into it") == [CONFIG]
    assert bench.node.host.node.read_text(CONFIG) == "of the site\n"


def test_a_change_that_is_in_force_has_nothing_to_clear_up(bench: Bench) -> None:
    """What lies beside its files is none of ours any more."""
    bench.apply()
    folder, _, name = CONFIG.rpartition("/")
    beside = f"{folder}/.{name}.driverforge-swap"
    bench.write(beside, "of the site\n")
    change.take_over(bench.system())
    assert bench.node.host.node.read_text(beside) == "of the site\n"
