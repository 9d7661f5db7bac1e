"""A network without a way out: a namespace of its own, with a loopback and nothing else."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from support.machines import namespaces
from support.machines.namespaces import CLONE_NEWNET

_SIOCSIFFLAGS = 0x8914  # sockios.h
_UP = 0x1 | 0x40  # net/if.h: IFF_UP, IFF_RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedNetwork:
    """The namespace is there for as long as this thread, or a program that was started inside, lives."""

    outside: int
    within: int

    @contextmanager
    def inside(self) -> Iterator[None]:
        """This thread is in it, with the programs and threads that it starts."""
        namespaces.enter(self.within, CLONE_NEWNET)
        try:
            yield
        finally:
            namespaces.enter(self.outside, CLONE_NEWNET)


@contextmanager
def closed_network() -> Iterator[ClosedNetwork]:
    """A new one, not entered yet. Raises Unavailable without root's rights."""
    outside = namespaces.current(CLONE_NEWNET)
    try:
        namespaces.make(CLONE_NEWNET)
        try:
            within = namespaces.current(CLONE_NEWNET)
            _bring_up_loopback()
        finally:
            namespaces.enter(outside, CLONE_NEWNET)
        try:
            yield ClosedNetwork(outside=outside, within=within)
        finally:
            os.close(within)
    finally:
        os.close(outside)


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _UP))
