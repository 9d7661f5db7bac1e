"""Ports: all that the node's code may ask of the system.

Each protocol is small enough that a test implements it over a directory or a table. Paths are absolute paths as the
process sees them; `Files` resolves them under its root, so the same code runs on a container's `/`, on the host's root
behind `/proc/1/root`, and on a directory made by a test.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finished program: its exit status and all that it printed (never truncated)."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.status == 0


class Commands(Protocol):
    """The one place where processes start."""

    def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        input_text: str | None = None,
        timeout: float | None = None,
        stream: bool = False,
    ) -> Result:
        """Run a program to its end; `env` is added to a minimal environment, `timeout` is in seconds.

        `stream` also logs each output line as it comes (long compilations). Raises CommandFailed when `check` and the status is
        not 0, Unavailable when the program is not there, TemporaryFailure on timeout.
        """

    def find(self, name: str) -> str | None:
        """The path that `name` resolves to on PATH, or None."""

    def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, log: str | None = None
    ) -> int:
        """Start a daemon that outlives this call; its output goes to the file `log`. Returns the PID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Whose a file is, and who may do what with it."""

    mode: int  # permission bits
    user: int
    group: int
    label: str = ""  # SELinux context, '' where there is none


class Files(Protocol):
    """Files under one root."""

    @property
    def root(self) -> str: ...

    def exists(self, path: str) -> bool: ...
    def is_dir(self, path: str) -> bool: ...
    def is_link(self, path: str) -> bool: ...
    def read_text(self, path: str) -> str: ...
    def read_bytes(self, path: str) -> bytes: ...
    def read_part(self, path: str, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset` on: the driver's libraries are large, and their headers say enough."""

    def under(self, folder: str) -> Files:
        """The same files with `folder` as their root: links inside, absolute ones too, stay inside it."""

    def list_dir(self, path: str) -> tuple[str, ...]:
        """Names in a directory, sorted; empty where there is no such directory."""

    def write_atomic(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Temp file beside it, fsync, rename, fsync of the directory; keeps mode, owner and SELinux label of an existing file."""

    def write_in_place(self, path: str, data: bytes) -> None:
        """For files that are not ours to replace: sysfs attributes and bind-mounted single files."""

    def make_dirs(self, path: str, *, mode: int = 0o755) -> None: ...
    def copy(self, source: str, target: str) -> None: ...
    def symlink(self, target: str, link: str) -> None:
        """Make `link` point to `target`, replacing an existing link atomically."""

    def resolve(self, path: str) -> str:
        """The path with symbolic links followed, as seen under the root."""

    def remove(self, path: str) -> None:
        """Remove a file or link; nothing happens where there is none."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory tree, never crossing a mount point."""

    def rename(self, source: str, target: str) -> None:
        """Give a file another name in the same folder, atomically. Raises FileNotFoundError: of several callers exactly one succeeds."""

    def exchange(self, first: str, second: str) -> None:
        """Swap what two names in one file system stand for, in one step where the file system can (renameat2(2), RENAME_EXCHANGE)."""

    def metadata(self, path: str) -> Metadata | None:
        """Of what `path` leads to; None where there is nothing."""

    def set_metadata(self, path: str, metadata: Metadata) -> None:
        """Owner, mode and, where the file system has labels, SELinux context."""

    def read_only(self, path: str) -> bool:
        """Whether the mount that `path` lies on refuses writes."""

    def identity(self, path: str) -> tuple[int, int] | None:
        """(device, inode) of what `path` leads to: equal for two paths to one file or directory. None where there is nothing."""

    def size(self, path: str) -> int | None:
        """Bytes of a file, None where there is none."""

    def stamp(self, path: str) -> tuple[int, int, int, int] | None:
        """(device, inode, bytes, modification time in ns) of what `path` leads to: another value after any change of a file or of a
        folder's names. None where there is nothing."""

    def make_char_device(self, path: str, major: int, minor: int) -> None:
        """A character device that everybody may use (0666), as nvidia-modprobe makes it; an existing one with these numbers stays."""

    def device_number(self, path: str) -> tuple[int, int] | None:
        """(major, minor) of a character device, None for anything else."""

    def free_bytes(self, path: str) -> int:
        """Bytes that we may still write on the file system that holds `path` (its nearest existing parent)."""

    def lock(self, path: str, *, text: str) -> AbstractContextManager[bool]:
        """Hold an exclusive lock on `path` for as long as the context lasts.

        Yields False, with the file untouched, when another process has it.
        `text` is written only after the lock was won (upstream truncates first: a second start wipes the first's PID).
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A line of /proc/self/mountinfo (proc(5))."""

    mount_id: int
    parent_id: int
    root: str
    target: str
    propagation: str  # 'private', 'shared', 'slave', 'shared,slave', 'unbindable'
    fs_type: str
    source: str
    device: str = ""  # '8:1': equal for two mounts of one file system


class Mounts(Protocol):
    def table(self) -> tuple[Mount, ...]: ...
    def rbind(self, source: str, target: str) -> None: ...
    def set_propagation(self, target: str, kind: str, *, recursive: bool = False) -> None:
        """`kind`: 'private', 'shared', 'slave', 'unbindable'."""

    def unmount(self, target: str, *, lazy: bool = False) -> None:
        """Unmount the top mount on `target`; `lazy` is MNT_DETACH and takes everything below along."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModule:
    """A module in the running kernel, from /proc/modules and /sys/module."""

    name: str  # normalised, with underscores
    refcount: int
    holders: tuple[str, ...]  # modules that use it
    version: str  # /sys/module/NAME/version, '' where the module states none
    state: str  # 'Live', 'Loading', 'Unloading'


class Modules(Protocol):
    def release(self) -> str:
        """uname -r."""

    def loaded(self) -> Mapping[str, LoadedModule]: ...

    def insert(self, name: str, *, base: str = "/", parameters: Sequence[str] = ()) -> None:
        """`modprobe -d base name parameters`. Raises with the tool's own message and the kernel's log lines of the attempt as details."""

    def remove(self, name: str) -> None:
        """`rmmod name`. Raises InUse or CommandFailed with the tool's own message."""

    def index(self, base: str, release: str) -> None:
        """`depmod -b base release`."""

    def kernel_log(self) -> tuple[str, ...]:
        """Lines of the kernel's ring buffer, oldest first; empty where it may not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that keeps something open, and where it comes from."""

    pid: int
    command: str
    path: str  # what it holds: a device file or a mapped file
    container: str  # container id from its cgroup, '' on the host
    pod: str  # pod UID from its cgroup, '' outside Kubernetes


class Processes(Protocol):
    def holders(self, prefixes: Sequence[str], *, majors: Collection[int] = ()) -> tuple[Holder, ...]:
        """Processes with an open file descriptor or mapping whose path starts with one of `prefixes` (e.g. '/dev/nvidia').

        `majors` finds character devices by number as well: in a container they have any path.
        """

    def users(self, part: str) -> tuple[Holder, ...]:
        """Processes with a program, working directory, root, mapping, open file or mount whose path has `part` in it.

        A container sees a folder of the node under any path; so `part` is the end of it, made unique by a hash.
        """

    def alive(self, pid: int, *, command: str | None = None) -> bool:
        """Whether `pid` runs (a zombie does not) and, if given, has `command` as its comm: a stale PID file names nobody."""

    def terminate(self, pid: int, *, timeout: float) -> bool:
        """SIGTERM, wait at most `timeout` seconds; whether it is gone. Never SIGKILL."""

    def effective_user(self) -> int: ...

    def become_subreaper(self) -> None:
        """Daemons that fork away from us become our children (PR_SET_CHILD_SUBREAPER): with hostPID we are not PID 1."""

    def reap(self) -> Mapping[int, int]:
        """Collect children that ended: PID to exit status (negative: the signal)."""


class Services(Protocol):
    def restart(self, unit: str, *, timeout: float) -> None:
        """Returns when the unit is up, as it tells systemd (Type=notify: k3s and rke2 after their control plane), or `timeout` s later.

        Raises CommandFailed, TemporaryFailure (the time is over; systemd goes on with it).
        """

    def main_pid(self, unit: str) -> int:
        """PID of the unit's main process, 0 when it is not running."""

    def last_log_lines(self, unit: str, count: int) -> tuple[str, ...]:
        """The end of the unit's log; empty where it cannot be read. Never raises: it is evidence beside something else."""


class Clock(Protocol):
    def monotonic(self) -> float: ...
    def now(self) -> float:
        """Seconds since the epoch."""

    def wait(self, seconds: float) -> str | None:
        """Sleep; returns early with the name of a stop signal ('SIGTERM', 'SIGINT') when one came, and goes on doing so."""

    def pause(self, seconds: float) -> None:
        """Sleep to the end, also after a stop signal: for what must not be cut in half."""

    def ticks(self, *, timeout: float, interval: float) -> Iterator[float]:
        """Yields elapsed seconds, at once and then every `interval`, until `timeout` has passed or a stop signal came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The system as one value. `files` is the process's own root, `node` the host's (explicit mounts first, else /proc/1/root)."""

    commands: Commands
    files: Files
    node: Files
    mounts: Mounts
    modules: Modules
    processes: Processes
    services: Services
    clock: Clock
    environ: Mapping[str, str]
