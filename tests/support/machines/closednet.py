"""A network without a way out: a namespace of its own, with a loopback and nothing else."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from driverforge_core.errors import Unavailable

_CLONE_NEWNET = 0x40000000  # sched.h
_SIOCSIFFLAGS = 0x8914  # sockios.h
_UP = 0x1 | 0x40  # net/if.h: IFF_UP, IFF_RUNNING
_HERE = "/proc/thread-self/ns/net"
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedNetwork:
    """The namespace is there for as long as this thread, or a program that was started inside, lives."""

    outside: int
    within: int

    @contextmanager
    def inside(self) -> Iterator[None]:
        """This thread is in it, with the programs and threads that it starts."""
        _enter(self.within)
        try:
            yield
        finally:
            _enter(self.outside)


@contextmanager
def closed_network() -> Iterator[ClosedNetwork]:
    """A new one, not entered yet. Raises Unavailable without root's rights."""
    outside = os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _LIBC.unshare(_CLONE_NEWNET):
            raise Unavailable(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            within = os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)
            _bring_up_loopback()
        finally:
            _enter(outside)
        try:
            yield ClosedNetwork(outside=outside, within=within)
        finally:
            os.close(within)
    finally:
        os.close(outside)


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _UP))


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns of a network namespace")
