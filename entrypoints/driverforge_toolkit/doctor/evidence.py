"""What the rules judge by: one look at a node, or at a dump of its files, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from driverforge_toolkit.cdi.specfiles import SpecFile
from driverforge_toolkit.runtime.backends.template_render import base_of
from driverforge_toolkit.runtime.journal import JournalEntry
from driverforge_toolkit.runtime.model import RuntimeKind
from driverforge_toolkit.runtime.transaction.refused import RefusedChange

APPLY = "driverctl runtime apply"

Document = Mapping[str, object]
Handlers = Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeEvidence:
    """A container runtime: its files, and what its process says.

    Empty and None stand for what could not be found out.
    """

    kind: RuntimeKind
    config: str
    socket: str = ""
    version: tuple[int, ...] = ()
    documents: Mapping[str, Document] = field(default_factory=dict)  # the files that it reads, in its order
    texts: Mapping[str, str] = field(default_factory=dict)  # the same files as they are written
    # files of its drop-in folders that it does not read
    loose: Mapping[str, Document] = field(default_factory=dict)
    broken: tuple[str, ...] = ()  # why its files cannot be read, in our words or in those of its own program
    # why it would not serve pods after its next start, and the lines that this is about
    doomed: tuple[str, ...] = ()
    runs: bool = False  # its process was seen
    reported: Handlers | None = None  # of the running process
    unit: str = ""
    supervisor: str = ""  # 'k3s', 'rke2', …
    read_only: str = ""  # the folder of its drop-in, where that cannot be written
    refused: RefusedChange | None = None  # the last change, where it did not accept that

    @property
    def service(self) -> str:
        return (
            self.unit.removesuffix(".service")
            or {"containerd": "containerd", "crio": "crio", "docker": "docker"}[self.kind]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateEvidence:
    """A template of k3s or rke2, and the root file that it made of this one or of an earlier one."""

    path: str
    text: str
    distribution: str  # 'k3s' or 'rke2'
    unit: str
    root: str | None = None  # None where it is not there

    @property
    def base(self) -> str:
        """The distribution's own configuration, '' where it is not known."""
        return ("" if self.root is None else base_of(self.root, self.text)) or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitEvidence:
    """NVIDIA's toolkit on the node. `there` says that INSTALL_DIR/toolkit leads to a folder."""

    folder: str
    there: bool = False
    config: str = ""  # config.toml, '' where there is none
    mode: str = ""
    default_kind: str = ""
    low_level: tuple[str, ...] = ()  # nvidia-container-runtime.runtimes
    own: tuple[str, ...] = ()  # those of them that lead back to the toolkit
    absent: tuple[str, ...] = ()  # those of them that are not on the node


class RestoreState(str, Enum):
    """How far a restore got; the name of the file that says so."""

    ARMED = "armed"
    FIRING = "firing"
    RESTORED = "restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreEvidence:
    """A restore that driverctl armed on the node."""

    path: str
    state: RestoreState
    watched: bool = False  # the driverctl that armed it still runs
    log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvidence:
    """All that was looked at. `live` is False for a dump, which has no processes."""

    live: bool
    toolkit: ToolkitEvidence
    runtimes: tuple[RuntimeEvidence, ...] = ()
    kubelet: bool = False
    kubelet_sockets: tuple[str, ...] = ()
    templates: tuple[TemplateEvidence, ...] = ()
    missing_programs: tuple[str, ...] = ()  # programs of NVIDIA's handlers that are not on the node
    specs: tuple[SpecFile, ...] = ()
    # spec -> its host paths that are not there
    gone: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hook_program: str = ""  # nvidia-cdi-hook or nvidia-ctk, where a usual folder of the node has it
    driver: str = ""  # version of the loaded module
    libraries: frozenset[str] = frozenset()  # versions of the driver's libraries, where specs look for them
    majors: Mapping[str, int] = field(default_factory=dict)
    numbers: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # device files of the driver
    unlinked: tuple[str, ...] = ()  # names that /dev/char lacks for them
    journal: tuple[JournalEntry, ...] = ()
    # config -> files of the journal that are other bytes now
    rewritten: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    journal_problem: tuple[str, ...] = ()
    restores: tuple[RestoreEvidence, ...] = ()
    lock_held: bool = False  # a driverctl changes the runtime right now
    ready: tuple[str, ...] = ()  # names in /run/nvidia/validations
    logs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # where from -> lines

    @property
    def containerds(self) -> tuple[RuntimeEvidence, ...]:
        return tuple(runtime for runtime in self.runtimes if runtime.kind == "containerd")

    def serves_kubelet(self, runtime: RuntimeEvidence) -> bool:
        return self.kubelet and (not self.kubelet_sockets or runtime.socket in self.kubelet_sockets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A problem that shows: what it is in one sentence, how it was seen, and the command that cures it."""

    what: str
    evidence: tuple[str, ...]
    command: str
