"""The script with which the node itself restores: real sh, real files, real processes.

Beside it: what is written of it, and journals.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_core.errors import InputError
from driverforge_node.host.real import real_host
from driverforge_node.ports import Metadata
from driverforge_node.runtime import journal
from driverforge_node.runtime.journal import JournalEntry, JournalFile
from driverforge_node.runtime.model import Supervisor
from driverforge_node.runtime.transaction import restore
from driverforge_node.runtime.transaction.restore import ProcessInstance
from support.fakes.fakehost import fake_node
from support.process import run

SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
ME = (os.getuid(), os.getgid())


@pytest.fixture
def dead() -> ProcessInstance:
    """A process that was."""
    with subprocess.Popen(["true"]) as child:
        found = restore.process_instance(real_host(), child.pid)
        child.wait()
    return found


@pytest.fixture
def sleeper() -> Iterator[ProcessInstance]:
    with subprocess.Popen(["sleep", "600"]) as child:
        yield restore.process_instance(real_host(), child.pid)
        child.kill()


class Case:
    """Two files of a change that was made: one that was there, one that was not."""

    def __init__(
        self, folder: Path, owner: ProcessInstance, daemon: ProcessInstance, *, reloads: bool = False
    ) -> None:
        self.here, self.etc = folder / "it's here", folder / "etc"
        self.here.mkdir()
        self.etc.mkdir()
        self.old, self.new = self.etc / "config $x.toml", self.etc / "conf.d/new.toml"
        self.new.parent.mkdir()
        self.files = [
            JournalFile(path=str(self.new), original=None, written=b"ours\n", before=None),
            JournalFile(
                path=str(self.old),
                original=b"a\r\nb",
                written=b"theirs and ours\n",
                before=b"a\r\nb",
                metadata=Metadata(mode=0o640, user=ME[0], group=ME[1]),
            ),
        ]
        for number, file in enumerate(self.files):
            Path(file.path).write_bytes(file.written or b"")
            for prefix, data in (("old", file.before), ("new", file.written)):
                if data is not None:
                    (self.here / f"{prefix}.{number}").write_bytes(data)
        text = restore.script(
            real_host(),
            str(self.here),
            self.files,
            folders=[str(self.new.parent)],
            daemon=daemon,
            restart=f"echo restarted >>'{self.etc}/restarts'",
            reloads=reloads,
        )
        mine = restore.process_instance(real_host(), "self").words()
        (self.here / restore.SCRIPT).write_text(text.replace(f"alive {mine} ", f"alive {owner.words()} "))
        (self.here / "armed").touch()

    def look(self) -> None:
        run("sh", self.here / restore.SCRIPT, "once")

    @property
    def restored(self) -> bool:
        return not self.new.exists() and self.old.read_bytes() == b"a\r\nb"

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
    tmp_path: Path, dead: ProcessInstance, sleeper: ProcessInstance
) -> None:
    case = Case(tmp_path, owner=dead, daemon=sleeper)
    case.look()
    assert case.restored
    assert not (case.etc / "restarts").exists()
    reloading = Case(make(tmp_path / "reloading"), owner=dead, daemon=sleeper, reloads=True)
    reloading.look()
    assert (reloading.etc / "restarts").exists()


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
    script = case.here / restore.SCRIPT
    text = script.read_text()
    deadline = text.partition("-lt ")[2].partition(" ")[0]
    script.write_text(text.replace(f"-lt {deadline} ", "-lt 1 "))
    case.look()
    assert case.restored


@pytest.mark.skipif(not SHELLCHECK, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing(tmp_path: Path, dead: ProcessInstance) -> None:
    case = Case(tmp_path, owner=dead, daemon=dead)
    run(str(SHELLCHECK), "--severity=warning", case.here / restore.SCRIPT)


def test_one_that_a_reboot_ended_in_the_middle_is_waited_for_once(tmp_path: Path) -> None:
    node = fake_node(tmp_path)
    here = f"{restore.FOLDER}/1-a"
    node.host.node.make_dirs(here)
    for name in ("firing", "log"):
        node.host.node.write_atomic(f"{here}/{name}", b"put /etc/x back\n")
    assert restore.settle_restore(node.host, "1-a")[0] == "put /etc/x back"
    begun = node.host.clock.monotonic()
    assert begun >= 120
    assert restore.settle_restore(node.host, "1-a") == ()
    assert node.host.clock.monotonic() == begun
    assert not node.host.node.exists(here)


# --- the journal

ENTRY = JournalEntry(
    kind="crio",
    socket="/run/crio/crio.sock",
    binary="/usr/bin/crio",
    config="/etc/crio/crio.conf",
    drop_in="/etc/crio/crio.conf.d/x",
    supervisor=Supervisor(kind="systemd", unit="crio.service"),
    handlers=(("nvidia", "/n"),),
    state="written",
    folders=("/etc/crio",),
    default="nvidia",
    restore="1-a",
    needs="restart",
    files=(
        JournalFile(path="/a", original=None, written=b"\xff\x00", before=b""),
        JournalFile(
            path="/b",
            original=b"x",
            written=None,
            before=b"x",
            metadata=Metadata(mode=0o600, user=1, group=2, label="system_u:x"),
        ),
    ),
)


def test_what_is_journalled_is_read_again(tmp_path: Path) -> None:
    host = fake_node(tmp_path).host
    whole = replace(ENTRY, state="prepared", earlier=replace(ENTRY, state="in force"))
    journal.write_entry(host, whole)
    assert journal.read_entry(host, "crio", "/etc/crio/crio.conf") == whole
    assert journal.entries(host) == (whole,)
    assert journal.read_entry(host, "docker", "/etc/crio/crio.conf") is None
    journal.remove_entry(host, "crio", "/etc/crio/crio.conf")
    assert journal.entries(host) == ()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 3}', '{"schema": 2}', '{"schema": 1}'])
def test_a_damaged_entry_is_one_message(tmp_path: Path, text: str) -> None:
    host = fake_node(tmp_path).host
    host.node.make_dirs(journal.FOLDER)
    host.node.write_atomic(journal.path_of("crio", "/x"), text.encode())
    with pytest.raises(InputError, match="is damaged"):
        journal.read_entry(host, "crio", "/x")


def test_an_entry_of_another_file_is_not_taken(tmp_path: Path) -> None:
    host = fake_node(tmp_path).host
    journal.write_entry(host, ENTRY)
    data = json.loads(host.node.read_text(journal.path_of("crio", ENTRY.config)))
    host.node.write_atomic(journal.path_of("crio", "/other"), json.dumps(data).encode())
    with pytest.raises(InputError, match="is damaged"):
        journal.read_entry(host, "crio", "/other")
