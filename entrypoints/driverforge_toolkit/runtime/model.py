"""The values that all rooms of the runtime share, and the Protocol of a backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NewType, Protocol

from driverforge_toolkit.runtime.formats.configfile import ConfigFile, Contents
from driverforge_toolkit.runtime.formats.values import KeyPath

# One file has a name in each mount namespace. Which one a text is, is its type where several kinds meet.
NodePath = NewType("NodePath", str)  # what the node's own processes call it
PodPath = NewType("PodPath", str)  # what this process calls it, in its container
# what the runtime calls it: another name for a snap's, or in a container
DaemonPath = NewType("DaemonPath", str)

ROOT_FOLDER = NodePath("/")

RuntimeKind = Literal["containerd", "crio", "docker"]
SupervisorKind = Literal["systemd", "k3s", "rke2", "k0s", "microk8s", "snap", ""]
# how the running daemon comes to see a changed file
Activation = Literal["none", "reload", "restart"]

RUNC = "io.containerd.runc.v2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A runtime handler: the name that a RuntimeClass uses, and the program that runs its containers."""

    name: str
    binary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedHandlers:
    """What the runtime's configuration shall have afterwards."""

    handlers: tuple[Handler, ...]
    default: str = ""  # the handler that pods get which name none; '' leaves the default as it is
    # without `default`: a default that is one of `handlers` is given up (upstream's set-as-default=false)
    release_default: bool = False
    cdi: bool = False  # switch the runtime's own CDI support on; False leaves it as it is
    # container_annotations patterns that are handed to the program, as 'cdi.k8s.io/*'
    annotations: tuple[str, ...] = ()
    runtime_type: str = RUNC  # containerd: of a handler whose template has none
    # further options of every handler, as {'SystemdCgroup': True}
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(handler.name for handler in self.handlers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisor:
    """Who starts the daemon again. `kind` is '' for nobody that we know."""

    kind: SupervisorKind
    # the systemd unit to restart: the daemon's own, or that of the distribution whose child it is
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInstance:
    """A process, which a later one with the same number is not mistaken for, not after a reboot either."""

    pid: int = 0  # 0: it does not run
    start: int = 0  # clock ticks after the system's start (proc(5), field 22)
    boot: str = ""  # the kernel's id of that start; '' where it is not known

    def is_same(self, other: ProcessInstance) -> bool:
        """Whether both are one process. Where the boot of one is not known, the PID alone tells."""
        if not self.boot or not other.boot:
            return self.pid == other.pid
        return self == other


NO_PROCESS = ProcessInstance()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeDaemon:
    """A container runtime of the node."""

    kind: RuntimeKind
    pid: int  # 0: it does not run
    binary: DaemonPath
    version: tuple[int, ...]  # (1, 6, 20); () when it could not be asked
    socket: NodePath
    config: NodePath  # the root file
    drop_in: NodePath  # the file that is ours; '' for docker, which has none
    supervisor: Supervisor
    reloads: bool = False  # a SIGHUP makes it read its file again, and costs nothing that is not in there
    folder: NodePath = ROOT_FOLDER  # its working folder
    # what else is in the drop-in's folder, and not read by it: that must not come into force with ours
    beside: tuple[NodePath, ...] = ()
    evidence: tuple[str, ...] = ()  # how each of these was found, a line each, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """A file without what we wrote.

    It has no bytes where it goes away. `kept` are the keys that others changed since: they stay.
    """

    file: ConfigFile
    kept: tuple[KeyPath, ...] = ()


class Backend(Protocol):
    """The configuration files of one kind of runtime. Pure: it gets files and values, and returns them.

    `files` has `paths(daemon)`, also those that are not there, and whatever these import, in the order in
    which the daemon reads them. `effective` is what the daemon itself makes of them.
    """

    def paths(self, daemon: RuntimeDaemon) -> tuple[str, ...]:
        """The files that a change of ours may write, in the order of writing."""

    def placed(self, daemon: RuntimeDaemon, files: Contents) -> RuntimeDaemon:
        """The daemon with its drop-in where it counts: with another name, if a file that is read later wins.

        `files` is without anything that we wrote before.
        """

    def patched(
        self,
        daemon: RuntimeDaemon,
        files: Contents,
        effective: Mapping[str, object],
        wanted: WantedHandlers,
    ) -> Contents:
        """Each of `paths(daemon)` as it shall be; one in which nothing has to change keeps its bytes.

        `files` and `effective` are without anything that we wrote before. Raises InputError for a broken file
        or a value of the wrong type, Unsupported where there is no correct result; it says what to do.
        """

    def undone(self, current: ConfigFile, *, original: bytes | None, written: bytes | None) -> Undone:
        """The file `current` without the difference between `original` and `written` (a three-way merge).

        Where nobody changed the file since, this is the exact original.
        """

    def stripped(self, daemon: RuntimeDaemon, files: Contents, names: tuple[str, ...]) -> Contents:
        """`files` without the handlers `names`.

        For a change that somebody else made, and of which there is no journal.
        """

    def unservable(self, effective: Mapping[str, object]) -> str:
        """Why the daemon could not serve pods with this; '' where nothing speaks against it."""

    def handlers(self, effective: Mapping[str, object]) -> dict[str, str]:
        """The handlers that the daemon sees, with their programs; '' where a handler names none."""

    def foreign(
        self, before: Mapping[str, object], after: Mapping[str, object], wanted: WantedHandlers
    ) -> dict[KeyPath, tuple[object, object]]:
        """The keys that are not ours and whose effective value differs, as (before, after)."""

    def activation(self, before: Mapping[str, object], after: Mapping[str, object]) -> Activation:
        """What the running daemon needs to go from the effective configuration `before` to `after`."""

    def low_level_runtimes(self, config: Mapping[str, object], own: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The programs that run containers for this configuration, the default runtime's first.

        NVIDIA's own are left out, and so are the paths `own`.
        """
