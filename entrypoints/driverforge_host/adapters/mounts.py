"""Mounts through mount(2) and umount2(2): the image needs no mount program, and errno comes back as it is."""

from __future__ import annotations

import ctypes
import errno
import os

from driverforge_core.errors import CommandFailed, InUse, NotPermitted
from driverforge_host.ports import Propagation
from driverforge_host.ports.mounts import Mount, parse_mountinfo

# linux/mount.h
MS_BIND, MS_REC = 4096, 16384
PROPAGATION = {"unbindable": 1 << 17, "private": 1 << 18, "slave": 1 << 19, "shared": 1 << 20}
MNT_DETACH = 2


class KernelMounts:
    """The `Mounts` port over the calling process's mount namespace."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def table(self) -> tuple[Mount, ...]:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            return parse_mountinfo(lines.read())

    def rbind(self, source: str, target: str) -> None:
        self._mount(source, target, MS_BIND | MS_REC, f"mount --rbind {source} {target}")

    # mount(2): the propagation is changed by a call of its own, never together with a bind
    def set_propagation(self, target: str, kind: Propagation, *, recursive: bool = False) -> None:
        flags = PROPAGATION[kind] | (MS_REC if recursive else 0)
        self._mount("none", target, flags, f"mount --make-{'r' if recursive else ''}{kind} {target}")

    def unmount(self, target: str, *, lazy: bool = False) -> None:
        shown = f"umount {'-l ' if lazy else ''}{target}"
        if self._libc.umount2(os.fsencode(target), MNT_DETACH if lazy else 0) != 0:
            self._fail(shown, target)

    def _mount(self, source: str, target: str, flags: int, shown: str) -> None:
        if self._libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None) != 0:
            self._fail(shown, target)

    def _fail(self, shown: str, target: str) -> None:
        number = ctypes.get_errno()
        details = [f"$ {shown}", f"{os.strerror(number)} (errno {errno.errorcode.get(number, number)})"]
        if number == errno.EBUSY:
            raise InUse(
                f"{target} is busy", details=details, resolution=f"see who uses it: fuser -vm {target}"
            )
        if number in (errno.EPERM, errno.EACCES):
            raise NotPermitted(
                f"may not mount: {shown}", details=details, resolution="run as root in a privileged container"
            )
        raise CommandFailed(f"failed: {shown}", details=details)
