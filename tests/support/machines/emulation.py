"""Another architecture's programs on this machine: QEMU's user-mode emulation, told to the kernel.

The kernel keeps one list of such interpreters for all (binfmt_misc). An entry of ours is there while a test
needs it, by the process that put it there.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from driverforge_core.arch import to_machine
from driverforge_core.errors import CommandFailed, Unavailable
from support import aptfetch
from support.process import run

_OURS = "driverforge"
# How ELF programs and libraries of an architecture begin: a 64-bit little-endian file of its machine (elf.h).
_MACHINES = {"arm64": r"\xb7\x00"}
_MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00"
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A base image in an engine, and its architecture."""

    arch: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _List:
    folder: Path

    def add(self, name: str, arch: str, interpreter: Path) -> None:
        # F: the kernel opens the interpreter now, and containers need no file of it
        entry = f":{name}:M::{_MAGIC}{_MACHINES[arch]}:{_MASK}:{interpreter}:F"
        (self.folder / "register").write_text(entry)

    def remove(self, name: str) -> None:
        (self.folder / name).write_text("-1")

    def forget_those_of_killed_runs(self) -> None:
        for entry in self.folder.glob(f"{_OURS}-*"):
            if not Path("/proc", entry.name.rpartition("-")[2]).exists():
                self.remove(entry.name)


@contextmanager
def emulated(arch: str) -> Iterator[None]:
    """Programs of `arch` ('arm64') start on this machine, also in containers.

    Raises Unavailable where the kernel has no such list, and for anybody but root.
    """
    if platform.machine() == to_machine(arch):
        yield
        return
    archive = aptfetch.archive()
    folder = archive.unpacked([archive.newest("qemu-user-static", suite="bookworm")])
    with TemporaryDirectory(prefix="binfmt-") as name:
        try:
            run("mount", "-t", "binfmt_misc", "binfmt_misc", name)
        except CommandFailed as error:
            raise Unavailable("the kernel lists no interpreters here", details=error.details) from error
        try:
            entries = _List(folder=Path(name))
            entries.forget_those_of_killed_runs()
            own = f"{_OURS}-{arch}-{os.getpid()}"
            entries.add(own, arch, folder / f"usr/bin/qemu-{to_machine(arch)}-static")
            try:
                yield
            finally:
                entries.remove(own)
        finally:
            run("umount", name)
