"""Ports: all that the node's code may ask of the system, and the values that go through them.

`Host` has one of each; `Sockets` and `Nvml` are handed to the few who need them. Each protocol is small
enough that a test implements it over a directory or a table.

Paths are absolute, as the process sees them. `Files` resolves them under its root, so the same code runs on a
container's `/`, on the host's root behind `/proc/1/root`, and on a directory made by a test.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from driverforge_core.mountinfo import Mount
from driverforge_core.texts import printable

# --- programs -------------------------------------------------------------------------------------


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

        `stream` also logs each output line as it comes (long compilations). Raises CommandFailed when `check`
        is set and the status is not 0, Unavailable when the program is not there, TemporaryFailure on
        timeout.
        """

    def find(self, name: str) -> str | None:
        """The path that `name` resolves to on PATH, or None."""

    def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, log: str | None = None
    ) -> int:
        """Start a daemon that outlives this call; its output goes to the file `log`. Returns the PID."""


# --- files ----------------------------------------------------------------------------------------


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

    def under(self, folder: str) -> Files:
        """The same files with `folder` as their root. Links inside, absolute ones too, stay inside it."""

    def resolve(self, path: str) -> str:
        """The path with symbolic links followed, as seen under the root."""

    # what is there

    def exists(self, path: str) -> bool: ...
    def is_dir(self, path: str) -> bool: ...
    def is_link(self, path: str) -> bool: ...
    def list_dir(self, path: str) -> tuple[str, ...]:
        """Names in a directory, sorted; empty where there is no such directory."""

    def size(self, path: str) -> int | None:
        """Bytes of a file, None where there is none."""

    def metadata(self, path: str) -> Metadata | None:
        """Of what `path` leads to; None where there is nothing."""

    def identity(self, path: str) -> tuple[int, int] | None:
        """(device, inode) of what `path` leads to, None where there is nothing.

        Two paths to one file have the same.
        """

    def stamp(self, path: str) -> tuple[int, int, int, int] | None:
        """What changes with every change of a file, or of the names in a folder; None where there is nothing.

        (device, inode, bytes, modification time in ns) of what `path` leads to.
        """

    def device_number(self, path: str) -> tuple[int, int] | None:
        """(major, minor) of a character device, None for anything else."""

    def read_only(self, path: str) -> bool:
        """Whether the mount that `path` lies on refuses writes."""

    def free_bytes(self, path: str) -> int:
        """Bytes that we may still write on the file system of `path` or its nearest existing parent."""

    # reading

    def read_text(self, path: str) -> str: ...
    def read_bytes(self, path: str) -> bytes: ...
    def read_part(self, path: str, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset` on: the headers of large libraries say enough."""

    # writing

    def write_atomic(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Replace a file whole: temporary file beside it, fsync, rename, fsync of the directory.

        Mode, owner and SELinux label of an existing file are kept, but for a `mode` that is given.
        """

    def replace_bytes(
        self, path: str, *, before: bytes | None, after: bytes | None, metadata: Metadata | None = None
    ) -> bool:
        """Replace a file whole, as `write_atomic`, if it has the bytes `before`; None: it is not there.

        False where it has others: what somebody else writes is never lost, also in the moment of the
        replacement, where the file system can swap two names. A file that is new gets `metadata`.
        """

    def settle_bytes(self, path: str, *, before: bytes | None, after: bytes | None) -> bool:
        """Clear up what a `replace_bytes` with these bytes left that was killed.

        Returns whether that gave the file somebody else's version back.
        """

    def write_in_place(self, path: str, data: bytes) -> None:
        """For files that are not ours to replace: sysfs attributes and bind-mounted single files."""

    def set_metadata(self, path: str, metadata: Metadata) -> None:
        """Set owner, mode and, where the file system has labels, the SELinux context."""

    def copy(self, source: str, target: str) -> None: ...
    def make_dirs(self, path: str, *, mode: int = 0o755) -> None: ...
    def make_private_dir(self, path: str) -> None:
        """Make a folder that nobody else may enter (0700), or take the one that is there if it is our own.

        Raises NotPermitted where there is a link, another kind of file, or somebody else's folder.
        """

    def symlink(self, target: str, link: str) -> None:
        """Make `link` point to `target`, replacing an existing link atomically."""

    def make_char_device(self, path: str, major: int, minor: int) -> None:
        """Make a character device that everybody may use (0666), as nvidia-modprobe does.

        An existing one with these numbers stays as it is.
        """

    def rename(self, source: str, target: str) -> None:
        """Give a file another name in the same folder, atomically.

        Raises FileNotFoundError where `source` is gone: of several callers exactly one succeeds.
        """

    def exchange(self, first: str, second: str) -> None:
        """Swap what two names in one file system stand for.

        It is one step where the file system can do that (renameat2(2), RENAME_EXCHANGE), else three.
        """

    def remove(self, path: str) -> None:
        """Remove a file or link; nothing happens where there is none."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory tree, never crossing a mount point."""

    def lock(self, path: str, *, text: str) -> AbstractContextManager[bool]:
        """Hold an exclusive lock on `path` for as long as the context lasts.

        Yields False, with the file untouched, when another process has it. `text` is written only after the
        lock was won: upstream truncates the file first, and its second start wipes the first one's PID. A
        link at `path` is not followed.
        """


def text_of(files: Files, path: str) -> str:
    """A text file; '' where there is none."""
    try:
        return files.read_text(path)
    except FileNotFoundError:
        return ""


def bytes_of(files: Files, path: str) -> bytes | None:
    """A file's bytes; None where there is none."""
    try:
        return files.read_bytes(path)
    except FileNotFoundError:
        return None


# --- mounts ---------------------------------------------------------------------------------------

Propagation = Literal["private", "shared", "slave", "unbindable"]


class Mounts(Protocol):
    """The mount namespace of this process."""

    def table(self) -> tuple[Mount, ...]:
        """In the kernel's order: a later mount on the same target lies on top."""

    def rbind(self, source: str, target: str) -> None: ...
    def set_propagation(self, target: str, kind: Propagation, *, recursive: bool = False) -> None: ...
    def unmount(self, target: str, *, lazy: bool = False) -> None:
        """Unmount the top mount on `target`; `lazy` is MNT_DETACH and takes everything below along."""


# --- kernel modules -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModule:
    """A module in the running kernel, from /proc/modules and /sys/module."""

    name: str  # normalised, with underscores
    refcount: int
    holders: tuple[str, ...]  # modules that use it
    version: str  # /sys/module/NAME/version, '' where the module states none
    state: str  # 'Live', 'Loading', 'Unloading'


class Modules(Protocol):
    """Modules of the running kernel."""

    def release(self) -> str:
        """uname -r."""

    def loaded(self) -> Mapping[str, LoadedModule]: ...

    def insert(self, name: str, *, base: str = "/", parameters: Sequence[str] = ()) -> None:
        """`modprobe -d base name parameters`.

        Raises CommandFailed with the tool's own message and the kernel's log lines of the attempt as details,
        TemporaryFailure where the kernel does not get done with it.
        """

    def remove(self, name: str) -> None:
        """`rmmod name`.

        Raises InUse or CommandFailed with the tool's own message, TemporaryFailure where the kernel does not
        get done with it.
        """

    def index(self, base: str, release: str) -> None:
        """`depmod -b base release`."""

    def kernel_log(self) -> tuple[str, ...]:
        """Lines of the kernel's ring buffer, oldest first; empty where it may not be read."""


# --- processes and services -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that keeps something open, and where it comes from."""

    pid: int
    command: str
    path: str  # what it holds: a device file or a mapped file
    container: str  # container id from its cgroup, '' on the host
    pod: str  # pod UID from its cgroup, '' outside Kubernetes


def describe_holder(holder: Holder) -> str:
    """The process, its container and pod, and the file that it holds, for people.

    The process chooses its name and its paths.
    """
    where = f", container {holder.container[:12]}" if holder.container else ", on the host"
    pod = f", pod {holder.pod}" if holder.pod else ""
    return printable(f"process {holder.pid} ({holder.command}{where}{pod}) holds {holder.path}")


class Processes(Protocol):
    """Processes, as far as we see them: all of them only with the host's PID namespace (hostPID)."""

    def holders(self, majors: Collection[int]) -> tuple[Holder, ...]:
        """Processes that have a character device of one of these majors open or mapped.

        The path says nothing: in a container a device has any, and any process may have a file of any name.
        """

    def opened_majors(self, pid: int, majors: Collection[int]) -> tuple[int, ...]:
        """The major of each descriptor by which `pid` has a character device of one of these majors open."""

    def users(self, part: str) -> tuple[Holder, ...]:
        """Processes that have something open, mapped or mounted whose path has `part` in it.

        Their program, working directory and root count, too. A container sees a folder of the node under any
        path, so `part` is the end of it, made unique by a hash.
        """

    def alive(self, pid: int, *, command: str | None = None) -> bool:
        """Whether `pid` runs (a zombie does not) and, if given, has `command` as its comm.

        Without `command`, a stale PID file may name somebody else's process.
        """

    def terminate(self, pid: int, *, timeout: float) -> bool:
        """Send SIGTERM and wait at most `timeout` seconds; whether it is gone. Never SIGKILL."""

    def effective_user(self) -> int: ...

    def become_subreaper(self) -> None:
        """Make daemons that fork away from us our children (PR_SET_CHILD_SUBREAPER).

        With hostPID we are not PID 1, whose children they would become.
        """

    def reap(self) -> Mapping[int, int]:
        """Collect children that ended: PID to exit status (negative: the signal)."""


class Services(Protocol):
    """Units of the node's service manager."""

    def restart(self, unit: str, *, timeout: float) -> None:
        """Restart a unit, and return when it tells systemd that it is up.

        With Type=notify that is late: k3s and rke2 are up after their control plane. Raises CommandFailed,
        and TemporaryFailure after `timeout` seconds, when systemd goes on with the restart without us.
        """

    def main_pid(self, unit: str) -> int:
        """PID of the unit's main process, 0 when it is not running.

        Raises CommandFailed, TemporaryFailure and Unavailable where nobody answers.
        """

    def start_seconds(self, unit: str) -> float:
        """What the unit's last start took; 0 where it has not started, or nobody tells.

        Never raises, as `last_log_lines`.
        """

    def last_log_lines(self, unit: str, count: int) -> tuple[str, ...]:
        """The end of the unit's log; empty where it cannot be read.

        Never raises: it is evidence beside something else.
        """


# --- time -----------------------------------------------------------------------------------------


class Clock(Protocol):
    """Time, and the stop signals that end a wait."""

    def monotonic(self) -> float: ...
    def now(self) -> float:
        """Seconds since the epoch."""

    def catch_signals(self) -> None:
        """From here on a stop signal ends the next wait and streamed commands, and not the process.

        The first wait does this, too.
        """

    def wait(self, seconds: float) -> str | None:
        """Sleep; returns early with the name of a stop signal ('SIGTERM', 'SIGINT') when one came.

        After a stop signal every further wait returns at once.
        """

    def pause(self, seconds: float) -> None:
        """Sleep to the end, also after a stop signal: for what must not be cut in half."""

    def ticks(self, *, timeout: float, interval: float) -> Iterator[float]:
        """Yield the elapsed seconds, at once and then every `interval` seconds.

        Ends when `timeout` seconds have passed or a stop signal came.
        """


# --- all of them ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The system as one value.

    `files` is the process's own root, `node` the host's (explicit mounts first, else /proc/1/root).
    """

    commands: Commands
    files: Files
    node: Files
    mounts: Mounts
    modules: Modules
    processes: Processes
    services: Services
    clock: Clock
    environ: Mapping[str, str]


# --- sockets of other daemons ---------------------------------------------------------------------


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


# --- GPUs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """A MIG device. Its index and UUID are known to NVML only; without them it is named by its instances."""

    gpu_instance: int
    compute_instance: int
    index: int | None = None
    uuid: str = ""
    # NVML only; not in the repr, of which specs hold a hash (`cdi.stale`)
    graphics: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU that a driver serves, with its MIG devices."""

    index: int  # NVML's order: by PCI address
    minor: int  # of /dev/nvidiaN
    uuid: str = ""
    bus_id: str = ""  # '0000:3b:00.0', as sysfs writes it
    mig_enabled: bool = False
    migs: tuple[Mig, ...] = ()
    model: str = ""


class Nvml(Protocol):
    """What NVML knows and /proc does not."""

    def gpus(self) -> tuple[Gpu, ...]:
        """Every GPU by index. Raises Unavailable where the library or every GPU is missing."""


class Cuda(Protocol):
    """The GPUs that this process may compute on."""

    def add_on_each(
        self, first: Sequence[float], second: Sequence[float]
    ) -> Iterator[tuple[str, list[float]]]:
        """Add two vectors of 32-bit floats on each device: its name, and the sums that it gave.

        Raises Unavailable with the driver's own error, TemporaryFailure where a call does not return.
        """


# --- the cluster ----------------------------------------------------------------------------------

JsonObject = dict[str, Any]
NODES = "/api/v1/nodes"


class Cluster(Protocol):
    """The API server, by the paths of its objects: '/api/v1/nodes/NAME'.

    Raises NotPermitted where it refuses us (401, 403), TemporaryFailure where it cannot answer now,
    Unavailable for any other refusal.
    """

    def get(self, path: str) -> JsonObject | None:
        """An object, None where there is none."""

    def list(self, path: str, *, labels: str = "") -> Iterator[JsonObject]:
        """The objects of a collection that fit a label selector, read in pages."""

    def patch(self, path: str, change: JsonObject) -> None:
        """Change fields of an object (JSON merge patch)."""

    def create(self, path: str, document: JsonObject) -> None:
        """Add an object to a collection."""

    def delete(self, path: str) -> None:
        """Remove an object; nothing happens where there is none."""


# --- metrics --------------------------------------------------------------------------------------


class MetricsServer(Protocol):
    """A page that Prometheus reads."""

    def serve(self, port: int, page: Callable[[], str]) -> AbstractContextManager[int]:
        """Serve what `page` gives at /metrics for as long as the context lasts; yields the port.

        Port 0 takes a free one. Raises Unavailable where the port is taken.
        """
