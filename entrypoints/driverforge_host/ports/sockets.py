"""Local sockets of other daemons."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Connection(Protocol):
    """A connected local stream socket."""

    def peer_pid(self) -> int:
        """PID of the process that listens, in our PID namespace; 0 when it is in none that we see."""

    def sender_pid(self) -> int:
        """PID of the process that sent what was received last, 0 where that is not known.

        It is another than the listener's where systemd opened the socket for the daemon.
        """

    def send(self, data: bytes) -> None:
        """Send all of `data`. Raises Unavailable when the other side is gone."""

    def receive(self, size: int) -> bytes:
        """At most `size` bytes, b'' at the end.

        Raises TemporaryFailure when nothing comes in time, Unavailable on a broken connection.
        """


class Sockets(Protocol):
    """Local (unix) sockets."""

    def connect(self, path: str, *, timeout: float) -> AbstractContextManager[Connection]:
        """Connect to the socket at `path`, as our own process sees it.

        Raises Unavailable where nobody answers, NotPermitted where the kernel does not let us.

        `timeout` is in seconds, for each operation. A whole conversation may take four times as long: a
        daemon that sends a byte now and then would keep us for ever.
        """
