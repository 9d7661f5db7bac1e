"""Namespaces that a thread of the bench enters and leaves."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from driverforge_core.errors import Unavailable
from support.process import run

# sched.h
CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
_CLONE_FS = 0x00000200
_FILES = {CLONE_NEWNS: "mnt", CLONE_NEWNET: "net"}
_LIBC = ctypes.CDLL(None, use_errno=True)


def current(kind: int) -> int:
    """A descriptor of this thread's namespace, which lives as long as that."""
    return os.open(f"/proc/thread-self/ns/{_FILES[kind]}", os.O_RDONLY | os.O_CLOEXEC)


def make(kind: int) -> None:
    """Put this thread into a new one. Raises Unavailable without root's rights."""
    if _LIBC.unshare(kind):
        raise Unavailable(f"no namespace ({_FILES[kind]}): {os.strerror(ctypes.get_errno())}")


def enter(namespace: int, kind: int) -> None:
    """Put this thread into one that is there; its working directory is the same path within."""
    folder = os.getcwd()  # noqa: PTH109
    # the kernel lets nobody change mounts whose root and working directory another thread shares
    if kind == CLONE_NEWNS and _LIBC.unshare(_CLONE_FS):
        raise OSError(ctypes.get_errno(), "unshare of root and working directory")
    if _LIBC.setns(namespace, kind):
        raise OSError(ctypes.get_errno(), f"setns ({_FILES[kind]})")
    os.chdir(folder)


@contextmanager
def own_mounts() -> Iterator[None]:
    """Mounts of this thread, and of what it starts inside, are its own, and gone at the end."""
    outside = current(CLONE_NEWNS)
    try:
        make(CLONE_NEWNS)
        try:
            run("mount", "--make-rprivate", "/")
            yield
        finally:
            enter(outside, CLONE_NEWNS)
    finally:
        os.close(outside)
