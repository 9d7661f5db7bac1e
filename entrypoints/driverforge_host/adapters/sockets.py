"""Local (unix) stream sockets, for the runtimes' own interfaces."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from driverforge_core.errors import NotPermitted, TemporaryFailure, Unavailable

CONVERSATION = 4  # timeouts
PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid


class UnixConnection:
    """The `Connection` port over a connected socket."""

    def __init__(self, connected: socket.socket, timeout: float) -> None:
        self._socket = connected
        self._timeout = timeout
        self._end = time.monotonic() + CONVERSATION * timeout
        self._sender = 0

    def peer_pid(self) -> int:
        """PID of the listening process (unix(7), SO_PEERCRED).

        0 when it is in no PID namespace that we see.
        """
        pid: int = PEER.unpack(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))[0]
        return pid

    def sender_pid(self) -> int:
        return self._sender

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Unavailable("the other side closed the connection", details=[str(error)]) from error

    def receive(self, size: int) -> bytes:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TemporaryFailure("no end of the answer in time")
        self._socket.settimeout(min(self._timeout, left))
        try:
            data, ancillary, _flags, _address = self._socket.recvmsg(size, socket.CMSG_SPACE(PEER.size))
        except TimeoutError as error:
            raise TemporaryFailure("no answer in time") from error
        except OSError as error:
            raise Unavailable("the connection broke", details=[str(error)]) from error
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                self._sender = PEER.unpack(content[: PEER.size])[0]
        return data


class UnixSockets:
    """The `Sockets` port."""

    @contextmanager
    def connect(self, path: str, *, timeout: float) -> Iterator[UnixConnection]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connected:
            connected.settimeout(timeout)
            # from now on the kernel tells with each message who sent it (unix(7), SCM_CREDENTIALS)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            _connect(connected, path)
            yield UnixConnection(connected, timeout)


def _connect(connected: socket.socket, path: str) -> None:
    folder, _, name = path.rpartition("/")
    try:
        # a socket's address has room for 108 bytes only; a descriptor of its folder makes any path short
        handle = os.open(folder or "/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connected.connect(f"/proc/self/fd/{handle}/{name}")
        finally:
            os.close(handle)
    except PermissionError as error:
        raise NotPermitted(
            f"we may not connect to {path}",
            details=[str(error)],
            resolution="give the pod `privileged: true`: SELinux or AppArmor refuses"
            if os.geteuid() == 0
            else "run this as root (sudo)",
        ) from error
    except OSError as error:
        raise Unavailable(f"nothing answers at {path}", details=[str(error)]) from error
