"""Processes: who has a device open, and to which container and pod they belong."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from driverforge_host.ports import Holder
from driverforge_host.ports.mounts import parse_mountinfo

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
POLL = 0.05

# the last path component of a container's cgroup: plain id (cgroupfs driver, docker), or with the runtime's
# prefix and '.scope' (systemd driver: cri-containerd-, crio-, docker-, libpod-)
CONTAINER = re.compile(
    r"(?:(?:cri-containerd|crio|docker|libpod|nerdctl)-)?([0-9a-f]{64})(?:\.scope)?(?=/|$)"
)
# kubepods/burstable/pod<uid> (cgroupfs) or kubepods-burstable-pod<uid with _>.slice (systemd)
POD = re.compile(r"kubepods.*?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})")


def parse_cgroup(text: str) -> tuple[str, str]:
    """(container id, pod UID) from /proc/PID/cgroup, v1 or v2; '' where there is none.

    v1 has a line for each controller and v2 a single '0::' line; the ids are the same in whichever line has
    them.
    """
    container = pod = ""
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        if found := CONTAINER.findall(path):
            # of nested containers, the innermost is the one that a person would kill
            container = container or found[-1]
        if match := POD.search(path):
            pod = pod or match.group(1).replace("_", "-")
    return container, pod


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedFile:
    """A file mapping of /proc/PID/maps."""

    # its name in /proc/PID/map_files: '7f0000-7f1000'
    area: str
    # (device, inode) of the file itself, as maps writes them
    identity: tuple[str, str]
    path: str


def mapped_files(maps: str) -> list[MappedFile]:
    """The file mappings of a /proc/PID/maps (proc(5)): area, permissions, offset, device, inode, path.

    Its lines end with \\n alone: a path may have any other character, and a process may map any file.
    """
    lines = (line.split(maxsplit=5) for line in maps.split("\n"))
    return [
        MappedFile(area=_area(fields[0]), identity=(fields[3], fields[4]), path=fields[5])
        for fields in lines
        if len(fields) == 6 and fields[5].startswith("/")
    ]


def _area(text: str) -> str:
    """maps fills addresses up to eight digits, map_files does not."""
    return "-".join(f"{int(address, 16):x}" for address in text.split("-"))


def _major(path: str) -> int | None:
    """The major of the character device that `path` leads to; None where that is nothing of the kind."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return os.major(found.st_rdev) if stat.S_ISCHR(found.st_mode) else None


class KernelProcesses:
    """The `Processes` port over /proc. Sees all processes only with the host's PID namespace (hostPID)."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc

    def holders(self, majors: Collection[int]) -> tuple[Holder, ...]:
        known: dict[tuple[str, str, str], int | None] = {}
        found = []
        for name in self._pids():
            held = {path for path, major in self._open_devices(name) if major in majors}
            held |= {path for path, major in self._mapped_devices(name, known) if major in majors}
            found += [self._holder(name, path) for path in sorted(held)]
        return tuple(found)

    def opened_majors(self, pid: int, majors: Collection[int]) -> tuple[int, ...]:
        opened = [major for _, major in self._open_devices(str(pid)) if major is not None]
        return tuple(major for major in opened if major in majors)

    def _pids(self) -> list[str]:
        return sorted((name for name in os.listdir(self._proc) if name.isdigit()), key=int)

    def _holder(self, pid: str, path: str) -> Holder:
        container, pod = parse_cgroup(self._text(pid, "cgroup"))
        command = self._text(pid, "comm").strip()
        return Holder(pid=int(pid), command=command, path=path, container=container, pod=pod)

    def _open_devices(self, pid: str) -> Iterator[tuple[str, int | None]]:
        """Each open file with a path, and the major of the character device that it is."""
        folder = f"{self._proc}/{pid}/fd"
        with suppress(OSError):  # gone, or not ours to read
            for number in os.listdir(folder):
                path = self._link(f"{pid}/fd/{number}")
                if path.startswith("/"):
                    yield path, _major(f"{folder}/{number}")

    def _mapped_devices(
        self, pid: str, known: dict[tuple[str, str, str], int | None]
    ) -> Iterator[tuple[str, int | None]]:
        """Each mapped file, and the major of the character device that it is.

        A mapping keeps the device open after its descriptor was closed. `known` has what was found before:
        all processes map the same libraries.
        """
        for mapped in mapped_files(self._text(pid, "maps")):
            key = (*mapped.identity, mapped.path)
            if key not in known:
                # Not the path: its owner may have put something else there by now.
                known[key] = _major(f"{self._proc}/{pid}/map_files/{mapped.area}")
            yield mapped.path, known[key]

    def users(self, part: str) -> tuple[Holder, ...]:
        found = []
        mounted: dict[str, str] = {}  # mount namespace -> a path in it that has `part`
        for name in self._pids():
            namespace = self._link(f"{name}/ns/mnt")
            if namespace not in mounted:
                roots = (mount.root for mount in parse_mountinfo(self._text(name, "mountinfo")))
                mounted[namespace] = next((root for root in roots if part in root), "")
            held = sorted(path for path in self._paths(name) if part in path)
            found += [self._holder(name, path) for path in held or filter(None, (mounted[namespace],))]
        return tuple(found)

    def _paths(self, pid: str) -> set[str]:
        """Paths that a process uses: its program, folders, mappings and open files."""
        paths = {self._link(f"{pid}/{name}") for name in ("exe", "cwd", "root")}
        paths |= {mapped.path for mapped in mapped_files(self._text(pid, "maps"))}
        with suppress(OSError):
            paths |= {self._link(f"{pid}/fd/{number}") for number in os.listdir(f"{self._proc}/{pid}/fd")}
        return paths

    def _link(self, name: str) -> str:
        try:
            return os.readlink(f"{self._proc}/{name}")
        except OSError:
            return ""

    def _text(self, pid: str | int, name: str) -> str:
        try:
            with open(f"{self._proc}/{pid}/{name}", encoding="utf-8", errors="replace") as text:
                return text.read()
        except OSError:
            return ""

    def alive(self, pid: int, *, command: str | None = None) -> bool:
        text = self._text(pid, "stat")
        if not text:
            return False
        # proc(5): comm is in parentheses and may hold anything, state is the first field after the last ')'
        comm, _, rest = text.partition("(")[2].rpartition(")")
        return rest.split()[0] not in ("Z", "X") and (command is None or comm == command[:15])

    def group(self, leader: int) -> list[int]:
        """PIDs of the processes of a process group that still run; a zombie does not."""
        found = []
        for name in filter(str.isdigit, os.listdir(self._proc)):
            fields = self._text(name, "stat").rpartition(")")[2].split()  # proc(5): state, ppid, pgrp
            if fields and fields[0] not in ("Z", "X") and fields[2] == str(leader):
                found.append(int(name))
        return found

    def terminate(self, pid: int, *, timeout: float) -> bool:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            return True
        deadline = time.monotonic() + timeout
        while self.alive(pid):
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL)
        return True

    def effective_user(self) -> int:
        return os.geteuid()

    def become_subreaper(self) -> None:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def reap(self) -> Mapping[int, int]:
        ended = {}
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                ended[pid] = os.waitstatus_to_exitcode(status)
        return ended
