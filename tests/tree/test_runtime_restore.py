"""The script with which the node itself restores: real sh, real files, real processes. Beside it: what is
written of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_host.adapters.real import real_host
from driverforge_host.ports import Metadata
from driverforge_toolkit.runtime.find.instance import boot_id, process_instance
from driverforge_toolkit.runtime.journal import JournalFile
from driverforge_toolkit.runtime.model import NO_PROCESS, ProcessInstance
from driverforge_toolkit.runtime.transaction import restore
from driverforge_toolkit.runtime.transaction.restore_script import (
    SCRIPT,
    RestoreOrder,
    boot_unit,
    script,
)
from support.fakes.fakehost import BOOT, fake_node
from support.process import run

SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
ME = (os.getuid(), os.getgid())


@pytest.fixture
def dead() -> ProcessInstance:
    """A process that was."""
    with subprocess.Popen(["true"]) as child:
        found = process_instance(real_host(), child.pid)
        child.wait()
    return found


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    # whoever started the tests may ignore hang-ups (nohup), and children inherit that
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        started = subprocess.Popen(["sleep", "600"])
    finally:
        signal.signal(signal.SIGHUP, before)
    with started:
        yield started
        started.kill()


@pytest.fixture
def sleeper(child: subprocess.Popen[bytes]) -> ProcessInstance:
    return process_instance(real_host(), child.pid)


class Case:
    """Two files of a change that was made: one that was there, one that was not."""

    def __init__(
        self,
        folder: Path,
        owner: ProcessInstance,
        daemon: ProcessInstance,
        *,
        reloads: bool = False,
        restart: str = "",
        journal: str = "",
    ) -> None:
        self.here, self.etc = folder / "it's here", folder / "etc"
        self.here.mkdir()
        self.etc.mkdir()
        self.old, self.new = self.etc / "config $x.toml", self.etc / "conf.d/new.toml"
        self.new.parent.mkdir()
        files = (
            JournalFile(path=str(self.new), original=None, written=b"ours\n", before=None),
            JournalFile(
                path=str(self.old),
                original=b"a\r\nb",
                written=b"theirs and ours\n",
                before=b"a\r\nb",
                metadata=Metadata(mode=0o640, user=ME[0], group=ME[1]),
            ),
        )
        for number, file in enumerate(files):
            Path(file.path).write_bytes(file.written or b"")
            for prefix, data in (("old", file.before), ("new", file.written)):
                if data is not None:
                    (self.here / f"{prefix}.{number}").write_bytes(data)
        self.order = RestoreOrder(
            files=files,
            folders=(str(self.new.parent),),
            daemon=daemon,
            restart=restart or f"echo restarted >>'{self.etc}/restarts'",
            unit="containerd.service",
            reloads=reloads,
            journal=journal,
        )
        mine = process_instance(real_host(), "self")
        self.write_script(f"alive {mine.pid} {mine.start} ", f"alive {owner.pid} {owner.start} ")
        (self.here / "armed").touch()

    def write_script(self, old: str, new: str) -> None:
        """The script, with another owner, boot or deadline in it."""
        place = self.here / SCRIPT
        text = place.read_text() if place.exists() else script(real_host(), str(self.here), self.order)
        assert old in text
        place.write_text(text.replace(old, new))

    def reboot(self) -> None:
        """As far as the script sees it: it was written in another boot."""
        self.write_script(boot_id(real_host().node), "8f0c1f0e-0000-4000-8000-000000000000")

    def look(self, mode: str = "once") -> None:
        run("sh", self.here / SCRIPT, mode)

    @property
    def restored(self) -> bool:
        return not self.new.exists() and self.old.read_bytes() == b"a\r\nb"

    @property
    def restarts(self) -> bool:
        return (self.etc / "restarts").exists()

    def said(self) -> str:
        log = self.here / "log"
        return log.read_text() if log.exists() else ""


def test_the_files_come_back_when_their_owner_has_died(tmp_path: Path, dead: ProcessInstance) -> None:
    case = Case(tmp_path, owner=dead, daemon=dead)
    case.look()
    assert case.restored
    assert stat.S_IMODE(case.old.stat().st_mode) == 0o640
    assert not case.new.parent.exists()
    assert (case.etc / "restarts").read_text() == "restarted\n"
    assert sorted(path.name for path in case.here.iterdir()) == [
        "log",
        "new.0",
        "new.1",
        "old.1",
        "restore.sh",
        "restored",
        "seen",
    ]
    case.look()  # and not twice
    assert (case.etc / "restarts").read_text() == "restarted\n"


def test_nothing_happens_while_the_owner_lives(
    tmp_path: Path, sleeper: ProcessInstance, dead: ProcessInstance
) -> None:
    case = Case(tmp_path, owner=sleeper, daemon=dead)
    case.look()
    assert (case.here / "armed").exists()
    assert not case.restored
    # a later process of that number is not the owner
    later = Case(make(tmp_path / "later"), owner=replace(sleeper, start=sleeper.start + 1), daemon=dead)
    later.look()
    assert later.restored


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_nothing_happens_once_it_is_disarmed(tmp_path: Path, dead: ProcessInstance) -> None:
    case = Case(tmp_path, owner=dead, daemon=dead)
    (case.here / "armed").rename(case.here / "disarmed")
    case.look()
    assert not case.restored
    assert not (case.etc / "restarts").exists()


def test_a_daemon_that_was_not_restarted_yet_is_left_running(
    tmp_path: Path, dead: ProcessInstance, sleeper: ProcessInstance, child: subprocess.Popen[bytes]
) -> None:
    case = Case(tmp_path, owner=dead, daemon=sleeper)
    case.look()
    assert case.restored
    assert not case.restarts
    reloading = Case(make(tmp_path / "reloading"), owner=dead, daemon=sleeper, reloads=True)
    reloading.look()
    assert child.wait(10) == -signal.SIGHUP
    assert not reloading.restarts


@pytest.mark.parametrize("reloads", [False, True])
def test_another_process_with_the_daemons_pid_is_left_alone(
    tmp_path: Path,
    dead: ProcessInstance,
    sleeper: ProcessInstance,
    child: subprocess.Popen[bytes],
    reloads: bool,
) -> None:
    later = replace(sleeper, start=sleeper.start + 1)
    case = Case(tmp_path, owner=dead, daemon=later, reloads=reloads)
    case.look()
    assert (case.restored, case.restarts, child.poll()) == (True, True, None)


@pytest.mark.parametrize("reloads", [False, True])
def test_nobody_of_an_earlier_boot_runs_any_more(
    tmp_path: Path, sleeper: ProcessInstance, child: subprocess.Popen[bytes], reloads: bool
) -> None:
    """PID and start come again after a reboot: it was the owner then, and the daemon."""
    case = Case(tmp_path, owner=sleeper, daemon=sleeper, reloads=reloads)
    case.reboot()
    case.look()
    assert (case.restored, case.restarts, child.poll()) == (True, True, None)


def test_after_a_reboot_the_files_come_back_and_the_runtime_starts_by_itself(
    tmp_path: Path, sleeper: ProcessInstance, dead: ProcessInstance
) -> None:
    case = Case(tmp_path, owner=dead, daemon=sleeper)
    case.look("boot")
    assert not case.restored, "in the boot of the change, the timer does it"
    case.reboot()
    case.look("boot")
    assert (case.restored, case.restarts) == (True, False)
    assert "the runtime starts after this" in case.said()


def test_the_unit_of_the_next_boot_waits_for_the_files_and_the_runtime_for_it(
    tmp_path: Path, dead: ProcessInstance
) -> None:
    order = Case(make(tmp_path / "100%"), owner=dead, daemon=dead).order
    lines = boot_unit("/var/lib/driverforge/restore/1-a", order).splitlines()
    assert "Before=containerd.service" in lines
    (mounts,) = [line for line in lines if line.startswith("RequiresMountsFor=")]
    assert mounts.endswith(f'/1-a" "{tmp_path}/100%%/etc/conf.d" "{tmp_path}/100%%/etc"')


def test_it_says_that_it_was_seen_running(
    tmp_path: Path, sleeper: ProcessInstance, dead: ProcessInstance
) -> None:
    case = Case(tmp_path, owner=sleeper, daemon=dead)
    case.look()
    assert (case.here / "seen").exists()
    assert not case.restored


# --- handed over: the node makes the change, and nobody comes to clear up


def handed_over(folder: Path, *, restart: str = "") -> tuple[Case, Path]:
    entry = folder / "entry.json"
    entry.write_text("of the revert")
    case = Case(folder, NO_PROCESS, NO_PROCESS, restart=restart, journal=str(entry))
    (case.here / "armed").rename(case.here / "firing")
    (case.here / "journal").write_text("of the revert")
    return case, entry


def test_a_change_that_was_handed_over_is_made_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    case, entry = handed_over(tmp_path)
    case.look()
    assert (case.restored, case.restarts, case.here.exists(), entry.exists()) == (True, True, False, False)


def test_a_later_journal_entry_stays(tmp_path: Path) -> None:
    case, entry = handed_over(tmp_path)
    entry.write_text("of somebody else")
    case.look()
    assert (case.restored, entry.exists()) == (True, True)


def test_a_runtime_that_did_not_start_then_leaves_the_evidence(tmp_path: Path) -> None:
    case, entry = handed_over(tmp_path, restart="false")
    case.look()
    assert "the runtime did not restart" in case.said()
    assert (case.restored, (case.here / "restored").exists(), entry.exists()) == (True, True, True)


# --- a kill in the middle of writing a file


@pytest.mark.parametrize("left", [b"a\r\nb", b"theirs and ours\n"])
def test_what_a_cut_off_write_left_goes_away(tmp_path: Path, dead: ProcessInstance, left: bytes) -> None:
    case = Case(tmp_path, owner=dead, daemon=dead)
    for end, data in (("draft", b"thei"), ("swap", left)):
        (case.etc / f".{case.old.name}.driverforge-{end}").write_bytes(data)
    (case.new.parent / f".{case.new.name}.driverforge-draft").write_bytes(b"ou")
    case.look()
    assert case.restored
    assert not case.new.parent.exists()
    assert sorted(path.name for path in case.etc.iterdir()) == [case.old.name, "restarts"]


def test_a_file_that_was_not_replaced_yet_has_nothing_left_beside_it(
    tmp_path: Path, dead: ProcessInstance
) -> None:
    case = Case(tmp_path, owner=dead, daemon=dead)
    case.old.write_bytes(b"a\r\nb")
    (case.etc / f".{case.old.name}.driverforge-swap").write_bytes(b"theirs and ours\n")
    case.look()
    assert case.restored
    assert sorted(path.name for path in case.etc.iterdir()) == [case.old.name, "restarts"]


def test_what_somebody_else_wrote_at_that_moment_comes_back(tmp_path: Path, dead: ProcessInstance) -> None:
    case = Case(tmp_path, owner=dead, daemon=dead)
    (case.etc / f".{case.old.name}.driverforge-swap").write_bytes(b"of the site\n")
    case.look()
    assert case.old.read_bytes() == b"of the site\n"
    assert sorted(path.name for path in case.etc.iterdir()) == [case.old.name, "restarts"]


def test_what_somebody_else_wrote_since_stays(tmp_path: Path, dead: ProcessInstance) -> None:
    case = Case(tmp_path, owner=dead, daemon=dead)
    case.old.write_text("kubespray\n")
    case.look()
    assert case.old.read_text() == "kubespray\n"
    assert not case.new.exists()
    assert f"left {case.old} alone" in case.said()


def test_one_that_was_killed_in_the_middle_goes_on(tmp_path: Path, dead: ProcessInstance) -> None:
    case = Case(tmp_path, owner=dead, daemon=dead)
    (case.here / "armed").rename(case.here / "firing")
    case.new.unlink()
    case.look()
    assert case.restored
    assert (case.here / "restored").exists()


def test_an_owner_that_hangs_is_not_waited_for(
    tmp_path: Path, sleeper: ProcessInstance, dead: ProcessInstance
) -> None:
    case = Case(tmp_path, owner=sleeper, daemon=dead)
    text = (case.here / SCRIPT).read_text()
    deadline = text.partition("-lt ")[2].partition(" ")[0]
    case.write_script(f"-lt {deadline} ", "-lt 1 ")
    case.look()
    assert case.restored


@pytest.mark.skipif(not SHELLCHECK, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing(tmp_path: Path, dead: ProcessInstance) -> None:
    case = Case(tmp_path, owner=dead, daemon=dead)
    run(str(SHELLCHECK), "--severity=warning", case.here / SCRIPT)


@pytest.mark.parametrize(("boot", "waits"), [(BOOT, True), ("of yesterday", False)])
def test_a_restore_under_way_is_waited_for_but_not_one_that_a_reboot_cut_off(
    tmp_path: Path, boot: str, waits: bool
) -> None:
    node = fake_node(tmp_path)
    here = f"{restore.FOLDER}/1-a"
    node.host.node.make_dirs(here)
    for name, text in (("firing", ""), ("log", "put /etc/x back\n"), (SCRIPT, f"boot='{boot}'\n")):
        node.host.node.write_atomic(f"{here}/{name}", text.encode())
    begun = node.host.clock.monotonic()
    assert restore.settle_restore(node.host, "1-a")[0] == "put /etc/x back"
    waited = node.host.clock.monotonic() - begun
    assert (waited >= restore.LAST_LOOK) is waits
    assert (waited == 0) is not waits
    assert restore.settle_restore(node.host, "1-a") == ()
    assert not node.host.node.exists(here)
