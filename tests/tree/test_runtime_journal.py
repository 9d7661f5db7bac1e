"""The journal of a node: its format, damage, and its lock. On a fake node."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_core.errors import InputError, NotPermitted, TemporaryFailure
from driverforge_host.ports import Host, Metadata
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.journal import JournalEntry, JournalFile, exclusive_runtime
from driverforge_toolkit.runtime.model import (
    Handler,
    NodePath,
    ProcessInstance,
    RuntimeDaemon,
    Supervisor,
    WantedHandlers,
)
from support.fakes.fakefiles import FakeFiles
from support.fakes.fakehost import BOOT, NODE, FakeNode, fake_node

CASES = Path(__file__).parents[1] / "cases/journal"
CONFIG = "/etc/containerd/config.toml"
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
WHOLE = replace(
    ENTRY,
    state="prepared",
    process=ProcessInstance(pid=7, start=12, boot=BOOT),
    wanted=WantedHandlers(
        handlers=(Handler(name="nvidia", binary="/n"),),
        default="nvidia",
        cdi=True,
        annotations=("cdi.k8s.io/*",),
        runtime_type="io.containerd.site.v1",
        options={"SystemdCgroup": True},
    ),
    earlier=replace(ENTRY, state="in force", handlers=(("gpu", "/g"), ("nvidia", "/n")), fingerprint="f0"),
)


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return fake_node(tmp_path, gpu=False)


@pytest.fixture
def host(node: FakeNode) -> Host:
    return node.host


def write(host: Host, path: str, text: str) -> None:
    host.node.make_dirs(journal.FOLDER)
    host.node.write_atomic(path, text.encode())


def mode_of(node: FakeNode, path: str) -> int:
    return stat.S_IMODE((node.places[NODE] / path[1:]).stat().st_mode)


def test_what_is_journalled_is_read_again(host: Host) -> None:
    journal.write_entry(host, WHOLE)
    assert journal.read_entry(host, "crio", ENTRY.config) == WHOLE
    assert journal.entries(host) == (WHOLE,)
    assert journal.read_entry(host, "docker", ENTRY.config) is None
    journal.remove_entry(host, "crio", ENTRY.config)
    assert journal.entries(host) == ()


def test_an_entry_in_the_format_of_today_is_read_by_later_code_too(host: Host) -> None:
    """A format that is read in another way needs another number."""
    path = journal.path_of("crio", ENTRY.config)
    assert path == "/var/lib/driverforge/journal/crio-etc-crio-crio.conf-57e0ac8a.json"
    write(host, path, (CASES / "schema-3.json").read_text())
    assert journal.read_entry(host, "crio", ENTRY.config) == WHOLE


def test_an_entry_is_a_text_that_people_can_read(host: Host) -> None:
    journal.write_entry(host, WHOLE)
    text = host.node.read_text(journal.path_of("crio", ENTRY.config))
    assert text.startswith('{\n  "schema": 3,\n  "kind": "crio",\n')
    assert text.endswith("\n}\n")
    assert json.loads((CASES / "schema-3.json").read_text()).keys() <= json.loads(text).keys()


def test_nobody_but_root_reads_a_journal(node: FakeNode) -> None:
    """The files of a runtime may have credentials of registries in them."""
    journal.write_entry(node.host, ENTRY)
    assert mode_of(node, journal.FOLDER) == 0o700
    assert mode_of(node, journal.path_of("crio", ENTRY.config)) == 0o600
    node.host.node.remove_tree(journal.FOLDER)
    with exclusive_runtime(node.host):
        assert mode_of(node, journal.FOLDER) == 0o700


def test_the_handlers_of_an_unfinished_change_are_those_of_the_earlier_one_too() -> None:
    assert ENTRY.names == ("nvidia",)
    assert WHOLE.names == ("nvidia", "gpu")


def test_a_file_of_an_entry_is_found_by_its_path() -> None:
    assert ENTRY.file("/b") == ENTRY.files[1]
    assert ENTRY.file("/etc/crio") is None


def test_the_daemon_of_an_entry_is_one_that_may_be_down() -> None:
    path = journal.path_of("crio", ENTRY.config)
    assert ENTRY.daemon() == RuntimeDaemon(
        kind="crio",
        pid=0,
        binary=ENTRY.binary,
        version=(),
        socket=ENTRY.socket,
        config=ENTRY.config,
        drop_in=ENTRY.drop_in,
        supervisor=ENTRY.supervisor,
        evidence=(f"{path}: the journal's entry",),
    )


def test_two_files_whose_names_are_alike_have_two_entries(host: Host) -> None:
    others = [replace(ENTRY, config=NodePath(path)) for path in ("/etc/a-b", "/etc/a/b")]
    for other in others:
        journal.write_entry(host, other)
    assert set(journal.entries(host)) == set(others)


def test_what_is_no_entry_is_left_alone(host: Host) -> None:
    write(host, f"{journal.FOLDER}/.driverforge-draft", "{")
    journal.write_entry(host, ENTRY)
    assert journal.entries(host) == (ENTRY,)


# --- what cannot be read


def test_an_entry_of_a_later_release_is_not_called_damaged(host: Host) -> None:
    write(host, journal.path_of("crio", "/x"), '{"schema": 4, "kind": "crio"}')
    with pytest.raises(InputError, match="a newer driverctl wrote") as caught:
        journal.read_entry(host, "crio", "/x")
    assert caught.value.details == ("its format is 4; this release reads format 3",)


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "JSONDecodeError"),
        ("[]", "TypeError"),
        ("{}", "KeyError"),
        ('{"schema": 3}', "KeyError"),
        ('{"schema": 2}', "ValueError"),
        ('{"schema": "3"}', "TypeError"),
        (json.dumps({**json.loads((CASES / "schema-3.json").read_text()), "wanted": 1}), "TypeError"),
        (DEEP, "RecursionError"),
    ],
)
def test_a_damaged_entry_is_one_message(host: Host, text: str, why: str) -> None:
    write(host, journal.path_of("crio", "/x"), text)
    with pytest.raises(InputError, match="is damaged") as caught:
        journal.read_entry(host, "crio", "/x")
    assert caught.value.details[0].startswith(f"{why}: ")


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("state", "half written", "ValueError: state 'half written'"),
        ("needs", "a reboot", "ValueError: needs 'a reboot'"),
        ("state", "", "ValueError: state ''"),
        ("schema", 2, "ValueError: its format is 2; this release reads format 3"),
    ],
)
def test_a_word_that_no_release_wrote_is_damage(host: Host, key: str, value: object, why: str) -> None:
    journal.write_entry(host, ENTRY)
    path = journal.path_of("crio", ENTRY.config)
    write(host, path, json.dumps({**json.loads(host.node.read_text(path)), key: value}))
    with pytest.raises(InputError, match="is damaged") as caught:
        journal.entries(host)
    assert caught.value.details == (why,)


def test_bytes_with_something_in_between_are_damage(host: Host) -> None:
    """Put back, they would be other bytes than those that were there."""
    journal.write_entry(host, ENTRY)
    path = journal.path_of("crio", ENTRY.config)
    write(host, path, host.node.read_text(path).replace('"eA=="', '"e!A=="'))
    with pytest.raises(InputError, match="is damaged"):
        journal.entries(host)


def test_an_entry_of_another_file_is_not_taken(host: Host) -> None:
    journal.write_entry(host, ENTRY)
    write(host, journal.path_of("crio", "/other"), host.node.read_text(journal.path_of("crio", ENTRY.config)))
    with pytest.raises(InputError, match="is damaged") as caught:
        journal.read_entry(host, "crio", "/other")
    assert caught.value.details == (f"it is the entry of {ENTRY.config}",)


# --- the lock


def test_one_driverctl_at_a_time_changes_the_runtime(host: Host) -> None:
    with exclusive_runtime(host):
        with pytest.raises(TemporaryFailure, match="another driverctl"), exclusive_runtime(host):
            pass
        assert host.node.read_text(f"{journal.FOLDER}/lock") == "driverctl runtime\n"
    with exclusive_runtime(host):
        assert host.node.exists(f"{journal.FOLDER}/lock")


class ReadOnly(FakeFiles):
    """Those of a node whose root nobody can write."""

    def make_dirs(self, path: str, *, mode: int = 0o755) -> None:
        raise NotPermitted(
            f"not permitted: making the folder {path}", details=["Read-only file system (errno EROFS)"]
        )


def test_a_node_that_cannot_be_written_is_one_sentence(node: FakeNode) -> None:
    host = replace(node.host, node=ReadOnly(node.places, node.files.fuse, NODE))
    with pytest.raises(NotPermitted, match="cannot be written") as caught, exclusive_runtime(host):
        pass
    assert "Talos" in caught.value.resolution
    assert "Read-only file system (errno EROFS)" in caught.value.details
