"""A runtime's files that nobody meant for driverctl: what a change leaves when a file of it cannot be written
or put back.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest

from driverctl.cli import run
from driverforge_core.errors import (
    CommandFailed,
    InputError,
    NotPermitted,
    StorageFailed,
    Unavailable,
    Unsupported,
    UsageError,
)
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.sockets import UnixSockets
from driverforge_host.ports import Host, Metadata
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.backends import config_files
from driverforge_toolkit.runtime.find import cri
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from driverforge_toolkit.runtime.transaction import change, plans, restore
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from support.fakes.fakecontainerd import CONFIG, DROP_IN, ROOT, FakeContainerd
from support.fakes.fakefiles import FakeFiles
from support.fakes.fakehost import NODE, FakeNode, fake_node

FOREIGN = b"version = 2\n# somebody's\n"


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return fake_node(tmp_path, gpu=False)


@pytest.fixture
def daemon(node: FakeNode) -> FakeContainerd:
    return FakeContainerd(node=node)


def apply(daemon: FakeContainerd, host: Host | None = None) -> None:
    system = RuntimeSystem(
        host=host or daemon.node.host,
        sockets=daemon,
        request=RuntimeRequest(wanted=wanted_handlers(), restart_command="restart"),
    )
    change.carry_out(plans.apply_plan(system), system)


def entry(daemon: FakeContainerd) -> journal.JournalEntry | None:
    return journal.read_entry(daemon.node.host, "containerd", CONFIG)


def test_a_file_that_cannot_be_written_takes_back_the_one_before_it(daemon: FakeContainerd) -> None:
    """A root file that is busy (EBUSY): the drop-in was written by then, and is in force where something
    imports it.
    """
    node = daemon.node.host.node
    daemon.node.files.fuse.refused = frozenset({CONFIG})
    with pytest.raises(CommandFailed, match="the old files are back") as caught:
        apply(daemon)
    assert not node.exists(DROP_IN)
    assert node.read_bytes(CONFIG) == ROOT
    assert entry(daemon) is None
    assert len([line for line in caught.value.details if "EBUSY" in line]) == 1


def test_a_file_that_is_too_large_to_be_a_configuration_is_not_read(daemon: FakeContainerd) -> None:
    os.truncate(daemon.node.host.node.real(CONFIG), config_files.MAX_BYTES + 1)
    with pytest.raises(InputError, match=f"{CONFIG} has {config_files.MAX_BYTES + 1} bytes"):
        apply(daemon)


@pytest.mark.parametrize(("more", "too_many"), [(0, False), (1, True)])
def test_imports_without_end_are_not_followed(daemon: FakeContainerd, more: int, too_many: bool) -> None:
    files = daemon.node.host.node
    files.make_dirs("/etc/many")
    for number in range(config_files.MAX_FILES - 1 + more):  # and the root file
        files.write_atomic(f"/etc/many/{number}.toml", b"version = 2\n")
    files.write_atomic(CONFIG, b'imports = ["/etc/many/*.toml"]\n' + ROOT)
    if not too_many:
        assert len(config_files.read_files(daemon.node.host, daemon.daemon)) == config_files.MAX_FILES + 1
        return
    with pytest.raises(Unsupported, match=f"{CONFIG} imports more than {config_files.MAX_FILES} files"):
        apply(daemon)


class Once(FakeFiles):
    """A file system that turns read-only after the first write of the drop-in."""

    def replace_bytes(
        self, path: str, *, before: bytes | None, after: bytes | None, metadata: Metadata | None = None
    ) -> bool:
        done = super().replace_bytes(path, before=before, after=after, metadata=metadata)
        if path == DROP_IN:
            self.fuse.refused = frozenset({DROP_IN, CONFIG})
        return done


def test_old_bytes_that_cannot_be_put_back_stay_in_the_journal_and_nobody_claims_otherwise(
    daemon: FakeContainerd,
) -> None:
    node = daemon.node.host.node
    node.make_dirs(DROP_IN.rpartition("/")[0])
    node.write_atomic(DROP_IN, FOREIGN)
    host = replace(daemon.node.host, node=Once(daemon.node.places, daemon.node.files.fuse, NODE))
    with pytest.raises(CommandFailed, match="not all of the old files could be put back"):
        apply(daemon, host)
    kept = entry(daemon)
    assert kept is not None
    assert {file.path: file.before for file in kept.files}[DROP_IN] == FOREIGN


def test_a_link_into_a_folder_that_is_not_there_is_no_file_to_write(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere/x")
    with pytest.raises(StorageFailed) as caught:
        RootedFiles().write_atomic(str(tmp_path / "link"), b"x")
    assert caught.value.details == (f"there is no folder {tmp_path}/nowhere",)


def test_files_that_all_import_one_another_are_read_once_each(daemon: FakeContainerd) -> None:
    """Twelve of them can be walked along in 12! ways."""
    node = daemon.node.host.node
    imports = b'imports = ["/etc/containerd/conf.d/*.toml"]\n'
    node.make_dirs(DROP_IN.rpartition("/")[0])
    node.write_atomic(CONFIG, imports + ROOT)
    for number in range(12):
        node.write_atomic(f"/etc/containerd/conf.d/{number}.toml", b"version = 2\n" + imports)
    daemon.restart()
    apply(daemon)
    assert node.exists(DROP_IN)


def test_an_import_that_is_no_pattern_is_refused(daemon: FakeContainerd) -> None:
    daemon.node.host.node.write_atomic(CONFIG, b'imports = ["/etc/containerd/[a-]*.toml"]\n' + ROOT)
    with pytest.raises(InputError, match="is not a pattern"):
        apply(daemon)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[]", "null", json.dumps({"schema": "x"}), json.dumps({"schema": 2, "files": [1]})],
)
def test_a_damaged_journal_is_one_error_with_the_way_out(daemon: FakeContainerd, text: str) -> None:
    node = daemon.node.host.node
    node.make_dirs(journal.FOLDER)
    node.write_atomic(journal.path_of("containerd", CONFIG), text.encode())
    with pytest.raises(InputError, match="is damaged") as caught:
        apply(daemon)
    assert caught.value.resolution.startswith(f"mv {journal.path_of('containerd', CONFIG)} /root/ && ")
    assert node.read_bytes(CONFIG) == ROOT


@contextmanager
def server(folder: Path, conversation: Callable[[socket.socket], None]) -> Iterator[str]:
    """A socket whose first two callers get `conversation`."""
    path = str(folder / "x.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()

        def serve() -> None:
            for _ in range(2):
                with suppress(OSError), listening.accept()[0] as connection:
                    conversation(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield path
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_a_socket_that_is_not_ours_to_ask_needs_root(tmp_path: Path) -> None:
    path, us = str(tmp_path / "x.sock"), os.geteuid()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        Path(path).chmod(0)
        try:
            os.seteuid(us or 65534)
            with pytest.raises(NotPermitted) as caught, UnixSockets().connect(path, timeout=1):
                pass
        finally:
            os.seteuid(us)
    assert "Permission denied" in caught.value.details[0]
    assert caught.value.resolution == "run this as root (sudo)"


def drip(connection: socket.socket) -> None:
    """HTTP/2 pings, more often than any timeout, for as long as somebody listens."""
    connection.sendall(b"\0\0\0\4\0\0\0\0\0")
    while True:
        connection.sendall(b"\0\0\x08\x06\0\0\0\0\0" + bytes(8))
        time.sleep(0.01)


def answer(headers: list[tuple[bytes, bytes]], body: bytes) -> Callable[[socket.socket], None]:
    def conversation(connection: socket.socket) -> None:
        protocol = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding=None)
        )
        protocol.initiate_connection()
        while data := connection.recv(65536):
            for event in protocol.receive_data(data):
                if isinstance(event, h2.events.StreamEnded):
                    protocol.send_headers(event.stream_id, [(b":status", b"200"), *headers])
                    protocol.send_data(event.stream_id, b"\0" + len(body).to_bytes(4, "big") + body)
                    protocol.send_headers(event.stream_id, [(b"grpc-status", b"0")], end_stream=True)
            connection.sendall(protocol.data_to_send())

    return conversation


@pytest.mark.parametrize(
    "conversation",
    [
        pytest.param(drip, id="never ends"),
        pytest.param(lambda connection: connection.sendall(bytes(range(256)) * 20), id="garbage"),
        pytest.param(lambda connection: None, id="hangs up"),
        pytest.param(lambda connection: connection.recv(1) and time.sleep(0.5), id="silent"),
        pytest.param(answer([], b"\xff" * 40), id="broken message"),
        pytest.param(answer([(b"grpc-message", b"\xff\xfe")], b""), id="header that is not a text"),
    ],
)
def test_whatever_a_socket_says_is_an_answer_in_time_or_unavailable(
    conversation: Callable[[socket.socket], None], tmp_path: Path
) -> None:
    with server(tmp_path, conversation) as path, pytest.raises(Unavailable):
        cri.status(UnixSockets(), path, timeout=0.2)


def test_paths_on_the_node_are_absolute(daemon: FakeContainerd) -> None:
    words = ["runtime", "apply", "--config", "config.toml", "--drop-in", "/ok", "--toolkit-dir", "toolkit"]
    with pytest.raises(UsageError, match="is absolute") as caught:
        run(words, lambda: daemon.node.host)
    assert caught.value.details == ("--config: 'config.toml'", "--toolkit-dir: 'toolkit'")


def test_a_restore_that_a_reboot_cut_off_is_waited_for_once(daemon: FakeContainerd) -> None:
    host = daemon.node.host
    host.node.make_dirs(f"{restore.FOLDER}/old")
    host.node.write_atomic(f"{restore.FOLDER}/old/firing", b"")
    host.node.write_atomic(f"{restore.FOLDER}/stray", b"")
    assert restore.settle_restore(host, "old") == ("it was cut off; driverctl goes on from the journal",)
    assert restore.settle_restore(host, "stray") == ()
    assert host.node.list_dir(restore.FOLDER) == ("stray",)
