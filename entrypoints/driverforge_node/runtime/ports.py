"""Ports that only the runtime half needs, besides `Host`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Connection(Protocol):
    """A connected local stream socket."""

    def peer_pid(self) -> int:
        """PID of the process that listens, in our PID namespace; 0 when it is in none that we see."""

    def sender_pid(self) -> int:
        """PID of the process that sent what was received last: not the listener's where systemd opened the socket for it. 0: unknown."""

    def send(self, data: bytes) -> None:
        """All of `data`. Raises Unavailable when the other side is gone."""

    def receive(self, size: int) -> bytes:
        """At most `size` bytes, b'' at the end. Raises TemporaryFailure when nothing comes in time, Unavailable on a broken connection."""


class Sockets(Protocol):
    def connect(self, path: str, *, timeout: float) -> AbstractContextManager[Connection]:
        """Connect to the socket at `path` (as our own process sees it); `timeout` is in seconds, for each operation.

        A whole conversation may take four times as long: one that sends a byte now and then would keep us for ever. Raises Unavailable.
        """
