"""What driverctl makes on the node for a restore, who is asked to carry it out, and how it is taken back.

On a fake node whose systemd is a function.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from driverforge_core.errors import TemporaryFailure, Unavailable
from driverforge_host.ports import Host, Result
from driverforge_toolkit.runtime.journal import JournalFile
from driverforge_toolkit.runtime.model import NO_PROCESS
from driverforge_toolkit.runtime.transaction import restore
from driverforge_toolkit.runtime.transaction.restore import FOLDER
from driverforge_toolkit.runtime.transaction.restore_script import (
    SCRIPT,
    UNIT_FOLDER,
    RestoreOrder,
    boot_unit,
    script,
)
from support.fakes.fakefiles import FakeFiles
from support.fakes.fakehost import BOOT, NODE, FakeCommands, FakeNode, fake_node

SYSTEMD = "/run/systemd/system"  # sd_booted(3)
NAME = "1-a"
HERE = f"{FOLDER}/{NAME}"
ENTER = ("nsenter", "--target", "1", "--mount")
WATCH = ("sh", f"{HERE}/{SCRIPT}", "stay")
STOP = (*ENTER, "--", "systemctl", "stop", "driverforge-restore-1-a.timer")
UNIT = f"{UNIT_FOLDER}/driverforge-boot-1-a.service"
LINK = f"{UNIT_FOLDER}/multi-user.target.wants/driverforge-boot-1-a.service"
JOURNAL = "/var/lib/driverforge/journal/x.json"
ORDER = RestoreOrder(
    files=(
        JournalFile(path="/etc/new.toml", original=None, written=b"ours", before=None),
        JournalFile(path="/etc/old.toml", original=b"theirs", written=b"both", before=b"theirs"),
    ),
    folders=(),
    daemon=NO_PROCESS,
    restart="true",
    unit="containerd.service",
    journal=JOURNAL,
)


@dataclass
class Commands(FakeCommands):
    """Programs that take `seconds` to answer."""

    seconds: float = 0.0
    answers: dict[str, int] = field(default_factory=dict)  # status by program of the node; 0 where not here

    def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        input_text: str | None = None,
        timeout: float | None = None,
        stream: bool = False,
    ) -> Result:
        result = super().run(argv, check=check, timeout=timeout)
        if timeout is not None and self.seconds > timeout:
            raise TemporaryFailure(f"{argv[0]} did not finish in {timeout:.0f} s")
        return result


@dataclass
class Bench:
    node: FakeNode
    commands: Commands
    looks: Callable[[], None]  # what the node does once somebody watches

    @property
    def host(self) -> Host:
        return self.node.host

    def systemd(self, words: Sequence[str]) -> tuple[int, str, str]:
        program = words[words.index("--") + 1]
        status = self.commands.answers.get(program, 0)
        if program == "systemd-run" and status == 0:
            self.looks()
        return status, "", "no such thing\n" if status else ""

    def watches(self) -> int:
        self.looks()
        return 900

    def sees(self) -> None:
        self.node.host.node.write_atomic(f"{HERE}/seen", b"")

    def put(self, **files: str) -> None:
        """Files in the restore's folder."""
        self.host.node.make_dirs(HERE)
        for name, text in files.items():
            self.host.node.write_atomic(f"{HERE}/{name}", text.encode())

    def files(self) -> dict[str, tuple[int, bytes]]:
        """The restore's files but the script: mode and bytes."""
        place = self.node.places[NODE] / HERE[1:]
        return {
            path.name: (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
            for path in place.iterdir()
            if path.name not in (SCRIPT, "seen")
        }

    def real(self, path: str) -> Path:
        return self.node.places[NODE] / path[1:]

    def boot_files(self) -> list[bool]:
        return [self.host.node.exists(path) for path in (UNIT, LINK)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A node of systemd."""
    node = fake_node(tmp_path, gpu=False)
    node.commands = commands = Commands()
    made = Bench(node=node, commands=commands, looks=lambda: None)
    made.looks = made.sees
    commands.programs["nsenter"] = made.systemd
    commands.daemons["nsenter"] = made.watches
    commands.daemons["sh"] = made.watches
    for folder in ("/proc/1", "/proc/self", SYSTEMD, UNIT_FOLDER, "/etc", JOURNAL.rpartition("/")[0]):
        node.host.node.make_dirs(folder)
    for path, text in (
        ("/proc/uptime", "100.0 1.0\n"),
        ("/proc/self/stat", f"9 (driverctl) S 1 {' '.join(['0'] * 17)} 7 0\n"),
        (JOURNAL, "of the revert"),
    ):
        node.host.node.write_atomic(path, text.encode())
    return made


@pytest.fixture
def alone(bench: Bench) -> Bench:
    """A node without systemd."""
    bench.host.node.remove_tree(SYSTEMD)
    return bench


def called(bench: Bench, program: str) -> list[tuple[str, ...]]:
    return [call for call in bench.commands.calls if program in call]


def test_a_name_has_its_time_in_it_and_comes_once(bench: Bench) -> None:
    names = {restore.new_name(bench.host) for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"1790001000-[0-9a-f]{8}", name) for name in names)


# --- what is made


def test_an_armed_restore_has_the_bytes_and_a_script_and_nobody_else_reads_them(bench: Bench) -> None:
    restore.arm(bench.host, NAME, ORDER)
    assert bench.files() == {
        "armed": (0o600, b""),
        "new.0": (0o600, b"ours"),
        "new.1": (0o600, b"both"),
        "old.1": (0o600, b"theirs"),
    }
    assert stat.S_IMODE(bench.real(HERE).stat().st_mode) == 0o700
    place = bench.real(f"{HERE}/{SCRIPT}")
    assert (stat.S_IMODE(place.stat().st_mode), place.read_text()) == (0o700, script(bench.host, HERE, ORDER))


def test_a_change_that_is_handed_over_has_the_journals_entry_beside_it(bench: Bench) -> None:
    restore.hand_over(bench.host, NAME, ORDER)
    files = bench.files()
    assert files["firing"] == (0o600, b"")
    assert files["journal"][1] == b"of the revert"
    assert "armed" not in files


def test_systemd_reads_the_unit_of_the_next_boot_by_its_link(bench: Bench) -> None:
    restore.arm(bench.host, NAME, ORDER)
    place = bench.real(UNIT)
    assert (stat.S_IMODE(place.stat().st_mode), place.read_text()) == (0o644, boot_unit(HERE, ORDER))
    assert bench.real(LINK).readlink() == Path("../driverforge-boot-1-a.service")


def test_where_no_systemd_reads_units_none_is_made(alone: Bench) -> None:
    restore.arm(alone.host, NAME, ORDER)
    assert alone.boot_files() == [False, False]


def test_a_node_whose_units_cannot_be_written_is_warned_of(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.real(UNIT_FOLDER).rmdir()
    bench.real(UNIT_FOLDER).write_text("")
    with caplog.at_level("WARNING", "driverforge"):
        restore.arm(bench.host, NAME, ORDER)
    assert any("a reboot in the middle of this change" in line for line in caplog.messages)
    assert "armed" in bench.files()


# --- who carries it out


def test_systemd_calls_the_script_every_two_seconds(bench: Bench) -> None:
    restore.arm(bench.host, NAME, ORDER)
    [call] = called(bench, "systemd-run")
    assert call == (
        *ENTER,
        "--",
        "systemd-run",
        "--unit=driverforge-restore-1-a",
        "--on-active=0",
        "--on-unit-inactive=2",
        "--collect",
        "--timer-property=AccuracySec=100ms",
        "--description=Restore of the container runtime's configuration",
        "/bin/sh",
        f"{HERE}/{SCRIPT}",
        "once",
    )
    assert called(bench, "stay") == []


def test_without_systemd_a_process_watches_outside_of_our_control_group(alone: Bench) -> None:
    restore.arm(alone.host, NAME, ORDER)
    assert alone.commands.calls == [(*ENTER, "--cgroup", "--", *WATCH)]


def test_a_systemd_that_refuses_the_timer_leaves_it_to_a_process(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.commands.answers["systemd-run"] = 1
    with caplog.at_level("WARNING", "driverforge"):
        restore.arm(bench.host, NAME, ORDER)
    assert any("did not accept the restore's timer" in line for line in caplog.messages)
    assert called(bench, "stay") == [(*ENTER, "--cgroup", "--", *WATCH)]


def test_a_systemd_that_takes_the_timer_is_not_complained_of(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", "driverforge"):
        restore.arm(bench.host, NAME, ORDER)
    assert caplog.messages == []


def test_on_the_node_itself_nothing_is_entered(alone: Bench) -> None:
    own = FakeFiles({"/": alone.node.places[NODE]}, alone.node.files.fuse)
    restore.arm(replace(alone.host, node=own), NAME, ORDER)
    assert alone.commands.calls == [WATCH]


# --- until it was seen to run


def test_arming_goes_on_as_soon_as_the_script_has_run(bench: Bench) -> None:
    bench.looks = lambda: None
    begun = bench.node.clock.time
    bench.node.clock.on_wait = lambda now: bench.sees() if now >= begun + 0.2 else None
    restore.arm(bench.host, NAME, ORDER)
    assert 0.2 <= bench.node.clock.time - begun < 0.3


def test_a_script_that_was_not_seen_running_for_half_a_minute_is_none(bench: Bench) -> None:
    bench.looks = lambda: None
    begun = bench.node.clock.time
    with pytest.raises(Unavailable, match="the node does not run the restore") as caught:
        restore.arm(bench.host, NAME, ORDER)
    assert caught.value.details == (f"{HERE}/{SCRIPT} has not run within 30 s",)
    assert bench.node.clock.time - begun >= 30


def test_a_change_that_nobody_takes_over_leaves_nothing(bench: Bench) -> None:
    bench.looks = lambda: None
    with pytest.raises(Unavailable, match="the node does not run the restore"):
        restore.hand_over(bench.host, NAME, ORDER)
    assert not bench.host.node.exists(HERE)
    assert bench.boot_files() == [False, False]


@pytest.mark.parametrize(("seconds", "long"), [(60.0, False), (61.0, True)])
def test_systemd_has_a_minute_to_answer(bench: Bench, seconds: float, long: bool) -> None:
    bench.commands.seconds = seconds
    if long:
        with pytest.raises(TemporaryFailure):
            restore.arm(bench.host, NAME, ORDER)
    else:
        restore.arm(bench.host, NAME, ORDER)


# --- how it is taken back


def test_a_restore_that_is_disarmed_leaves_nothing(bench: Bench) -> None:
    restore.arm(bench.host, NAME, ORDER)
    bench.commands.answers["systemctl"] = 5  # the timer is not there any more
    restore.disarm(bench.host, NAME)
    assert called(bench, "systemctl") == [STOP]
    assert bench.host.node.list_dir(FOLDER) == ()
    assert bench.boot_files() == [False, False]


def test_where_no_systemd_runs_it_is_not_asked_to_stop_a_timer(alone: Bench) -> None:
    restore.arm(alone.host, NAME, ORDER)
    restore.disarm(alone.host, NAME)
    assert called(alone, "systemctl") == []
    assert alone.host.node.list_dir(FOLDER) == ()


def test_a_restore_is_disarmed_also_where_it_cannot_be_cleared_away(bench: Bench) -> None:
    restore.arm(bench.host, NAME, ORDER)
    bench.commands.seconds = 61.0
    restore.disarm(bench.host, NAME)
    files = bench.files()
    assert "disarmed" in files
    assert "armed" not in files


@pytest.mark.parametrize("state", ["firing", "restored"])
def test_a_restore_that_the_node_has_begun_cannot_be_disarmed(bench: Bench, state: str) -> None:
    bench.put(**{state: "", "log": "put /etc/x back\nrestarted the runtime\n"})
    with pytest.raises(Unavailable, match="the node has put the old configuration back") as caught:
        restore.disarm(bench.host, NAME)
    assert caught.value.details == ("put /etc/x back", "restarted the runtime")
    assert state in bench.files()


def test_a_restore_that_was_never_armed_is_cleared_away(bench: Bench) -> None:
    bench.put(log="")
    restore.disarm(bench.host, NAME)
    assert bench.host.node.list_dir(FOLDER) == ()


# --- after a driverctl that died


def test_a_restore_of_a_dead_driverctl_that_is_only_armed_is_taken_back(bench: Bench) -> None:
    restore.arm(bench.host, NAME, ORDER)
    begun = bench.node.clock.time
    assert restore.settle_restore(bench.host, NAME) == ()
    assert (bench.host.node.list_dir(FOLDER), bench.node.clock.time) == ((), begun)
    assert called(bench, "systemctl") == [STOP]


def test_a_restore_that_is_done_is_told_of_and_cleared_away(bench: Bench) -> None:
    bench.put(restored="", log="put /etc/x back\n", **{SCRIPT: f"boot='{BOOT}'\n"})
    begun = bench.node.clock.time
    assert restore.settle_restore(bench.host, NAME) == ("put /etc/x back",)
    assert (bench.host.node.list_dir(FOLDER), bench.node.clock.time) == ((), begun)


def test_a_restore_under_way_is_waited_for_no_longer_than_it_lasts(bench: Bench) -> None:
    bench.put(firing="", log="put /etc/x back\n", **{SCRIPT: f"boot='{BOOT}'\n"})
    begun = bench.node.clock.time

    def ends(now: float) -> None:
        if now >= begun + 1.0 and bench.host.node.exists(f"{HERE}/firing"):
            bench.host.node.rename(f"{HERE}/firing", f"{HERE}/restored")

    bench.node.clock.on_wait = ends
    assert restore.settle_restore(bench.host, NAME) == ("put /etc/x back",)
    assert bench.node.clock.time - begun == 1.0


def test_a_restore_that_does_not_end_is_waited_for_seven_minutes(bench: Bench) -> None:
    bench.put(firing="", **{SCRIPT: f"boot='{BOOT}'\n"})
    begun = bench.node.clock.time
    cut_off = "it was cut off; driverctl goes on from the journal"
    assert restore.settle_restore(bench.host, NAME) == (cut_off,)
    assert bench.node.clock.time - begun == 420
    assert bench.host.node.list_dir(FOLDER) == ()


def test_what_is_no_folder_of_a_restore_is_left_alone(bench: Bench) -> None:
    bench.host.node.make_dirs(FOLDER)
    bench.host.node.write_atomic(HERE, b"theirs")
    assert restore.settle_restore(bench.host, NAME) == ()
    assert bench.host.node.read_bytes(HERE) == b"theirs"


def test_the_units_of_restores_that_are_gone_go_and_no_others(bench: Bench) -> None:
    files = bench.host.node
    for name in ("1-a", "2-b"):
        files.make_dirs(f"{UNIT_FOLDER}/multi-user.target.wants")
        files.write_atomic(f"{UNIT_FOLDER}/driverforge-boot-{name}.service", b"")
        files.symlink("x", f"{UNIT_FOLDER}/multi-user.target.wants/driverforge-boot-{name}.service")
    for theirs in ("containerd.service", "driverforge-boot-3-c.timer"):
        files.write_atomic(f"{UNIT_FOLDER}/{theirs}", b"")
    files.make_dirs(f"{FOLDER}/2-b")
    restore.remove_stray_boot_units(bench.host)
    assert sorted(files.list_dir(UNIT_FOLDER)) == [
        "containerd.service",
        "driverforge-boot-2-b.service",
        "driverforge-boot-3-c.timer",
        "multi-user.target.wants",
    ]
    assert files.list_dir(f"{UNIT_FOLDER}/multi-user.target.wants") == ("driverforge-boot-2-b.service",)
