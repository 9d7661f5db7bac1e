"""What a runtime is, what is wanted of it, and what a backend has to know: the values and the one Protocol of this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from driverforge_node.runtime.document import Path

Kind = Literal["containerd", "crio", "docker"]
# how the running daemon comes to see a changed file
Activation = Literal["none", "reload", "restart"]

RUNC = "io.containerd.runc.v2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A runtime handler: the name that a RuntimeClass uses, and the program that runs containers for it."""

    name: str
    binary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the runtime's configuration shall have when we are done."""

    handlers: tuple[Handler, ...]
    default: str = ""  # the handler that pods get which name none; '' leaves the default as it is
    release_default: bool = False  # without `default`: a default that is one of `handlers` is given up (upstream's set-as-default=false)
    cdi: bool = False  # switch the runtime's own CDI support on; False leaves it as it is
    annotations: tuple[
        str, ...
    ] = ()  # container_annotations patterns that are handed to the program, as 'cdi.k8s.io/*'
    runtime_type: str = RUNC  # containerd: of a handler whose template has none
    options: Mapping[str, object] = field(
        default_factory=dict
    )  # further options of every handler, as {'SystemdCgroup': True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisor:
    """Who starts the daemon again. `kind` is 'systemd', 'k3s', 'rke2', 'k0s', 'microk8s', 'snap' or '' for nobody that we know."""

    kind: str
    unit: str = (
        ""  # the systemd unit to restart: the daemon's own, or that of the distribution whose child it is
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A container runtime of the node. Paths are as the node's own processes see them."""

    kind: Kind
    pid: int  # 0: it does not run
    binary: str
    version: tuple[int, ...]  # (1, 6, 20); () when it could not be asked
    socket: str
    config: str  # the root file
    drop_in: str  # the file that is ours; '' for docker, which has none
    supervisor: Supervisor
    evidence: tuple[str, ...] = ()  # how each of these was found, a line each, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """A file without what we wrote (None: it goes away), and the keys that others changed since, which stay."""

    data: bytes | None
    kept: tuple[Path, ...] = ()


class Backend(Protocol):
    """The configuration files of one kind of runtime. Pure: bytes and values in, bytes and values out.

    `files` maps a path to its bytes, None where there is no such file: `paths(daemon)` and whatever these import, in the order in
    which the daemon reads them. `effective` is what the daemon itself makes of them.
    """

    def paths(self, daemon: Daemon) -> tuple[str, ...]:
        """The files that a change of ours may write, in the order of writing."""

    def patched(
        self,
        daemon: Daemon,
        files: Mapping[str, bytes | None],
        effective: Mapping[str, object],
        wanted: Wanted,
    ) -> dict[str, bytes | None]:
        """New bytes of each of `paths(daemon)`; unchanged ones where nothing has to be written.

        Raises InputError (broken, wrong types), Unsupported (no correct result exists; says what to do). `files` and `effective` are
        without anything that we wrote before.
        """

    def undone(
        self, path: str, *, original: bytes | None, written: bytes | None, current: bytes | None
    ) -> Undone:
        """Three-way: `current` without the difference of `original` and `written`; the exact original where nobody changed it since."""

    def stripped(
        self, daemon: Daemon, files: Mapping[str, bytes | None], names: tuple[str, ...]
    ) -> dict[str, bytes | None]:
        """`files` without the handlers `names`, for a change that somebody else made and of which there is no journal."""

    def handlers(self, effective: Mapping[str, object]) -> dict[str, str]:
        """Handlers that the daemon sees, with their programs ('' where a handler names none)."""

    def foreign(
        self, before: Mapping[str, object], after: Mapping[str, object], wanted: Wanted
    ) -> dict[Path, tuple[object, object]]:
        """Keys outside ours whose effective value differs, as (before, after)."""

    def activation(self, before: Mapping[str, object], after: Mapping[str, object]) -> Activation:
        """What the running daemon needs for going from the effective configuration `before` to `after`."""

    def low_level_runtimes(self, config: Mapping[str, object], own: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Programs that run containers for this configuration, the default runtime's first; never NVIDIA's, nor one of the paths `own`."""
