"""The restore that is armed for a change: who carries it out, for how long it is there, and when a change is
handed over to it. On a fake node with a containerd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_core.errors import CommandFailed, TemporaryFailure, Unavailable
from driverforge_toolkit.app.configure_runtime import revert_at_stop
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.find.supervisor import SYSTEMD
from driverforge_toolkit.runtime.model import ProcessInstance, Supervisor
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import change, plans, refused, restore
from driverforge_toolkit.runtime.transaction.change_plan import ChangePlan, RuntimeSystem
from driverforge_toolkit.runtime.transaction.restore_script import SCRIPT, UNIT_FOLDER
from support.fakes.fakecontainerd import CONFIG, DROP_IN, ROOT, SOCKET, FakeContainerd
from support.fakes.fakedocker import FakeDocker
from support.fakes.fakehost import NODE, FakeNode, FakeServices, fake_node
from support.fakes.fakeruntimes import with_docker

RKE2 = "rke2-server.service"
RKE2_ROOT = b'imports = ["/etc/containerd/config.toml.d/*.toml"]\n' + ROOT
RKE2_DROP_IN = "/etc/containerd/config.toml.d/99-nvidia.toml"


class Units(FakeServices):
    """Units whose restart is containerd's; `main` is the main process."""

    def __init__(self, daemon: FakeContainerd, main: Callable[[], int]) -> None:
        super().__init__()
        self.daemon, self.main = daemon, main
        self.there: list[list[str]] = []  # unit files of ours at each restart

    def restart(self, unit: str, *, timeout: float) -> None:
        super().restart(unit, timeout=timeout)
        self.there.append(boot_units(self.daemon.node))
        self.daemon.restart()

    def main_pid(self, unit: str) -> int:
        return self.main()


def boot_units(node: FakeNode) -> list[str]:
    place = node.places[NODE] / UNIT_FOLDER[1:]
    return sorted(str(path.relative_to(place)) for path in place.rglob("*driverforge*"))


@dataclass
class Bench:
    node: FakeNode
    daemon: FakeContainerd
    units: Units

    def system(self, **more: object) -> RuntimeSystem:
        request = RuntimeRequest(wanted=wanted_handlers(), patience=1.0)
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

    def text(self, path: str) -> bytes | None:
        node = self.node.host.node
        return node.read_bytes(path) if node.exists(path) else None


def bench_of(folder: Path, *, unit: str) -> Bench:
    """A node of systemd, which runs the containerd as `unit`."""
    node = fake_node(folder, gpu=False)
    for place in (SYSTEMD, UNIT_FOLDER):
        node.host.node.make_dirs(place)
    daemon = FakeContainerd(node=node, unit=unit)
    if unit == RKE2:
        node.host.node.write_atomic(CONFIG, RKE2_ROOT)
    node.services = units = Units(daemon, lambda: daemon.pid)
    return Bench(node=node, daemon=daemon, units=units)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_of(tmp_path, unit="containerd.service")


def nothing_runs(words: Sequence[str]) -> tuple[int, str, str]:
    """What systemd starts there does nothing, and says that all is well."""
    return 0, "", ""


def test_a_restore_that_nobody_was_seen_to_run_is_none(bench: Bench) -> None:
    system = bench.system()
    plan = plans.apply_plan(system)
    bench.node.commands.programs["nsenter"] = nothing_runs
    with pytest.raises(CommandFailed, match="the change was not made") as caught:
        change.carry_out(plan, system)
    assert any("the node does not run the restore" in line for line in caught.value.details)
    assert (bench.text(CONFIG), bench.text(DROP_IN), bench.daemon.starts) == (ROOT, None, 1)
    assert (journal.entries(bench.node.host), boot_units(bench.node)) == ((), [])
    assert not bench.node.host.node.list_dir(refused.FOLDER), "containerd was not asked"
    assert not bench.node.host.node.list_dir(restore.FOLDER)


def test_the_next_boot_restores_too_for_as_long_as_the_change_lasts(bench: Bench) -> None:
    bench.apply()
    ((unit, link),) = bench.units.there
    assert link == f"multi-user.target.wants/{unit}"
    assert boot_units(bench.node) == []


class Busy:
    """systemd of a node under load: the first questions get no answer."""

    def __init__(self, pid: int, unanswered: int) -> None:
        self.pid, self.left = pid, unanswered

    def __call__(self) -> int:
        self.left -= 1
        if self.left >= 0:
            raise TemporaryFailure("'systemctl' took longer than 30 s")
        return self.pid


def test_a_question_to_systemd_that_failed_is_asked_again(bench: Bench) -> None:
    bench.units.main = Busy(bench.daemon.pid, 2)
    bench.apply()
    assert bench.units.restarted == ["containerd.service"]


@pytest.mark.parametrize("named", ["", SOCKET])
def test_a_systemd_that_does_not_answer_is_no_answer(bench: Bench, named: str) -> None:
    """Neither is containerd taken for one that nobody restarts, nor docker for the only runtime."""
    bench.units.main = Busy(bench.daemon.pid, 99)
    system = replace(bench.system(socket=named), sockets=with_docker(bench.node, bench.daemon))
    for plan in (plans.apply_plan, plans.revert_plan):
        with pytest.raises(CommandFailed, match=r"systemd does not say .* containerd\.service") as caught:
            plan(system)
        assert caught.value.details == ("'systemctl' took longer than 30 s",)
    assert bench.text(DROP_IN) is None


def test_a_node_without_systemd_has_nobody_to_ask(bench: Bench) -> None:
    bench.node.host.node.remove_tree(SYSTEMD)
    bench.units.main = Busy(0, 99)
    assert plans.apply_plan(bench.system()).daemon.supervisor == Supervisor(kind="")


def test_a_restart_is_guarded_also_where_nothing_is_written(bench: Bench) -> None:
    bench.apply()
    bench.node.host.node.write_atomic("/empty.toml", b"")
    bench.daemon.running = bench.daemon.reads("/empty.toml")
    plan = bench.apply()
    assert (plan.writes, plan.activation, bench.daemon.starts) == ((), "restart", 3)
    assert all(bench.units.there), "whoever is killed now leaves no dead containerd"


def test_a_unit_that_a_kill_left_goes_away_with_the_next_driverctl(bench: Bench) -> None:
    files = bench.node.host.node
    files.write_atomic(f"{UNIT_FOLDER}/driverforge-boot-1-a.service", b"")
    files.write_atomic(f"{UNIT_FOLDER}/driverforge-boot-2-b.service", b"")
    files.make_dirs(f"{restore.FOLDER}/2-b")
    restore.remove_stray_boot_units(bench.node.host)
    assert boot_units(bench.node) == ["driverforge-boot-2-b.service"]


def test_the_next_driverctl_clears_up_after_one_that_was_killed(bench: Bench) -> None:
    files, system = bench.node.host.node, bench.system()
    entry = plans.apply_plan(system).entry
    journal.write_entry(system.host, entry)
    folder, _, name = CONFIG.rpartition("/")
    files.write_atomic(CONFIG, next(file.written for file in entry.files if file.path == CONFIG) or b"")
    files.write_atomic(f"{folder}/.{name}.driverforge-swap", b"of the site\n")
    files.write_atomic(f"{UNIT_FOLDER}/driverforge-boot-1-a.service", b"")
    change.take_over(system)
    assert bench.text(CONFIG) == b"of the site\n"
    assert boot_units(bench.node) == []


def test_drafts_of_a_journal_entry_that_a_kill_left_go_away(bench: Bench) -> None:
    drafts = [f"{folder}/.driverforge-cv8y038t" for folder in (journal.FOLDER, refused.FOLDER)]
    for draft in drafts:
        bench.node.host.node.make_dirs(draft.rpartition("/")[0])
        bench.node.host.node.write_atomic(draft, b"")
    bench.apply(restart_mode="none")
    change.take_over(bench.system())
    assert [bench.text(draft) for draft in drafts] == [None, None]
    assert len(journal.entries(bench.node.host)) == 1


def test_a_damaged_entry_is_the_matter_of_its_own_daemon(bench: Bench) -> None:
    bench.node.host.node.make_dirs(journal.FOLDER)
    bench.node.host.node.write_atomic(f"{journal.FOLDER}/crio-x.json", b"{")
    change.take_over(bench.system())
    bench.apply()
    assert bench.daemon.starts == 2


def test_a_node_whose_units_cannot_be_written_is_changed_all_the_same(bench: Bench) -> None:
    place = bench.node.places[NODE] / UNIT_FOLDER[1:]
    place.rmdir()
    place.write_text("")  # what is no folder cannot be written into, by root neither
    bench.apply()
    assert bench.daemon.starts == 2


# --- a revert that takes longer than a stop may


def handed_over(bench: Bench) -> list[str]:
    """The folders of restores that are under way."""
    node = bench.node.host.node
    return [name for name in node.list_dir(restore.FOLDER) if node.exists(f"{restore.FOLDER}/{name}/firing")]


def test_a_stop_on_rke2_hands_the_revert_to_the_node(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, unit=RKE2)
    bench.apply()
    written, begun = bench.text(RKE2_DROP_IN), bench.node.clock.monotonic()
    revert_at_stop(bench.system())
    assert bench.node.clock.monotonic() - begun < 30
    assert bench.units.restarted == [RKE2], "of the apply"
    (name,) = handed_over(bench)
    files, here = bench.node.host.node, f"{restore.FOLDER}/{name}"
    assert files.read_bytes(f"{here}/new.0") == written
    assert not files.exists(f"{here}/old.0"), "a drop-in that was not there goes away"
    assert f"systemctl restart {RKE2}" in files.read_text(f"{here}/{SCRIPT}")
    (entry,) = journal.entries(bench.node.host)
    assert files.read_bytes(f"{here}/journal") == files.read_bytes(journal.path_of(entry.kind, entry.config))
    assert boot_units(bench.node), "a reboot does not end it"


def test_a_stop_elsewhere_reverts_by_itself(bench: Bench) -> None:
    bench.apply()
    revert_at_stop(bench.system())
    assert (bench.text(CONFIG), bench.text(DROP_IN), handed_over(bench)) == (ROOT, None, [])
    assert journal.entries(bench.node.host) == ()


@pytest.mark.parametrize(
    ("plan", "outlasts"),
    [
        ({}, True),
        ({"activation": "none"}, False),
        ({"supervisor": Supervisor(kind="rke2")}, False),  # known by its files only: nobody can restart it
        ({"supervisor": Supervisor(kind="systemd", unit="containerd.service")}, False),
    ],
)
def test_only_the_start_of_a_whole_distribution_outlasts_a_stop(
    tmp_path: Path, plan: dict[str, object], outlasts: bool
) -> None:
    bench = bench_of(tmp_path, unit=RKE2)
    bench.apply()
    system = bench.system()
    found = plans.revert_plan(system)
    assert found is not None
    if supervisor := plan.pop("supervisor", None):
        found = replace(found, daemon=replace(found.daemon, supervisor=supervisor))  # type: ignore[arg-type]
    found = replace(found, **plan)  # type: ignore[arg-type]
    assert change.outlasts_a_stop(found, system) is outlasts


@pytest.mark.parametrize("why", ["no systemd", "restart mode none"])
def test_where_the_node_cannot_go_on_the_revert_is_made_here(tmp_path: Path, why: str) -> None:
    bench = bench_of(tmp_path, unit=RKE2)
    bench.apply()
    if why == "no systemd":
        bench.node.host.node.remove_tree(SYSTEMD)
    revert_at_stop(bench.system(restart_mode="none" if why == "restart mode none" else ""))
    assert (bench.text(CONFIG), bench.text(RKE2_DROP_IN), handed_over(bench)) == (RKE2_ROOT, None, [])


def test_a_revert_that_the_node_does_not_take_over_leaves_nothing_behind(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, unit=RKE2)
    bench.apply()
    system = bench.system()
    plan = plans.revert_plan(system)
    assert plan is not None
    bench.node.commands.programs["nsenter"] = nothing_runs
    with pytest.raises(Unavailable, match="the node does not run the restore"):
        change.hand_over(plan, system)
    assert not bench.node.host.node.list_dir(restore.FOLDER)
    assert boot_units(bench.node) == []
    assert bench.text(RKE2_DROP_IN) is not None


# --- a daemon is a PID with its start, in a boot


def reboot(bench: Bench) -> None:
    """The daemon comes back with the PID that it had."""
    pid = bench.daemon.pid
    bench.node.boot("of today")
    bench.daemon.starts -= 1
    bench.daemon.restart()
    assert bench.daemon.pid == pid


def test_after_a_reboot_the_daemon_has_read_the_files_whatever_its_pid(bench: Bench) -> None:
    """Written before the reboot and left to a restart by somebody else, as restart mode none says."""
    bench.apply(restart_mode="none")
    reboot(bench)
    plan = plans.revert_plan(bench.system())
    assert plan is not None
    assert plan.why == "the effective configuration changes"
    bench.apply()
    assert bench.units.restarted == []


def test_a_change_that_a_reboot_cut_off_needs_no_restart_to_be_taken_back(bench: Bench) -> None:
    """The files are the old ones, and the daemon was started with these."""
    journal.write_entry(bench.node.host, plans.apply_plan(bench.system()).entry)
    plan = plans.revert_plan(bench.system())
    assert plan is not None
    assert plan.why == "the running daemon never read our files"
    reboot(bench)
    plan = plans.revert_plan(bench.system())
    assert plan is not None
    assert (plan.activation, plan.why) == ("none", "the effective configuration stays")


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({}, True),
        ({"start": 2}, False),
        ({"boot": "b"}, False),
        ({"boot": "", "start": 0}, True),  # of a node whose /proc does not tell it
        ({"pid": 8}, False),
        ({"pid": 8, "boot": ""}, False),
    ],
)
def test_a_process_is_told_from_a_later_one(other: dict[str, object], same: bool) -> None:
    one = ProcessInstance(pid=7, start=1, boot="a")
    assert one.is_same(replace(one, **other)) is same  # type: ignore[arg-type]
    assert replace(one, **other).is_same(one) is same  # type: ignore[arg-type]


def test_nobody_else_is_sent_a_hangup(tmp_path: Path) -> None:
    """The docker that was to reload ended, and another process has its PID."""
    docker = FakeDocker(node=fake_node(tmp_path, gpu=False))
    system = RuntimeSystem(
        host=docker.node.host,
        sockets=docker,
        request=RuntimeRequest(wanted=wanted_handlers(), restart_command="restart", patience=1.0),
    )
    plan = plans.apply_plan(system)
    assert plan.activation == "reload"
    docker.node.host.node.write_atomic(
        f"/proc/{docker.pid}/stat", f"{docker.pid} (sshd) S 1 {' '.join(['0'] * 17)} 77 0\n".encode()
    )
    with pytest.raises(CommandFailed):
        change.carry_out(plan, system)
    assert docker.reloads == 0
