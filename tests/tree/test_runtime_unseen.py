"""A socket that something answers at, with a daemon behind it of which too little can be seen.

On a fake node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from driverforge_core.errors import TemporaryFailure, Unavailable, Unsupported
from driverforge_host.ports import Connection, Sockets
from driverforge_toolkit.runtime.find import selection, sockethttp
from driverforge_toolkit.runtime.find.daemon import daemon_behind
from driverforge_toolkit.runtime.model import NodePath
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from support.fakes.fakecontainerd import SOCKET, FakeContainerd
from support.fakes.fakehost import FakeNode, fake_node
from support.fakes.fakeruntimes import Silent

REQUEST = RuntimeRequest(wanted=wanted_handlers())


@dataclass
class Peer:
    """The other side of a connection, by its PID and by what it sends."""

    pid: int = 0
    sends: Callable[[], bytes] = bytes
    said: list[bytes] = field(default_factory=list)

    def peer_pid(self) -> int:
        return self.pid

    def sender_pid(self) -> int:
        return self.pid

    def send(self, data: bytes) -> None:
        self.said.append(data)

    def receive(self, size: int) -> bytes:
        return self.sends()

    @contextmanager
    def connect(self, path: str, *, timeout: float) -> Iterator[Connection]:
        yield self


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = fake_node(tmp_path, gpu=False)
    FakeContainerd(node=made)
    return made


def test_a_daemon_of_a_pid_namespace_that_we_do_not_see_is_told(node: FakeNode) -> None:
    """The kernel gives such a peer the PID 0."""
    with pytest.raises(Unsupported, match="in a PID namespace that we do not see") as caught:
        daemon_behind(node.host, Peer(pid=0), SOCKET, REQUEST)
    assert "hostPID: true" in caught.value.resolution


def test_a_daemon_that_has_ended_since_it_answered_is_not_there(node: FakeNode) -> None:
    with pytest.raises(Unavailable, match=f"the process 999 behind {SOCKET} ended just now"):
        daemon_behind(node.host, Peer(pid=999), SOCKET, REQUEST)


def test_where_the_given_socket_has_no_runtime_no_other_is_taken(node: FakeNode) -> None:
    given = NodePath("/run/gone.sock")
    sockets = Silent(given, FakeContainerd(node=node))
    assert selection.select(node.host, sockets, REQUEST).socket == SOCKET
    with pytest.raises(Unavailable, match=f"no container runtime answers at {given}") as caught:
        selection.select(node.host, sockets, replace(REQUEST, socket=given))
    assert caught.value.details == ("connection refused",)


def silence() -> bytes:
    raise TemporaryFailure("no answer in time")


@pytest.mark.parametrize(
    ("peer", "says"),
    [
        (Peer(sends=silence), "docker does not answer GET /info"),
        (Peer(sends=lambda: b"x" * sockethttp.CHUNK), "the answer of docker to GET /info is too long"),
    ],
)
def test_a_docker_that_does_not_come_to_an_end_is_unavailable(peer: Peer, says: str) -> None:
    sockets: Sockets = peer
    with pytest.raises(Unavailable, match=says) as caught:
        sockethttp.docker_status(sockets, "/run/docker.sock")
    assert type(caught.value) is Unavailable
    assert peer.said == [b"GET /info HTTP/1.0\r\nHost: docker\r\n\r\n"]
