"""What the rules go by: one look at a node, or at a dump of its files, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driverforge_node.cdi.specdirs import SpecFile
from driverforge_node.runtime.journal import Entry
from driverforge_node.runtime.model import Kind

Document = Mapping[str, object]
Handlers = Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeFacts:
    """A container runtime: its files, and what its process says. Empty and None stand for what could not be found out."""

    kind: Kind
    config: str
    socket: str = ""
    version: tuple[int, ...] = ()
    documents: Mapping[str, Document] = field(default_factory=dict)  # the files that it reads, in its order
    loose: Mapping[str, Document] = field(
        default_factory=dict
    )  # files of its drop-in folders that it does not read
    broken: tuple[str, ...] = ()  # why its files cannot be read, in our words or in those of its own program
    runs: bool = False  # its process was seen
    reported: Handlers | None = None  # of the running process
    unit: str = ""
    supervisor: str = ""  # 'k3s', 'rke2', …
    read_only: str = ""  # the folder of its drop-in, where that cannot be written

    @property
    def service(self) -> str:
        return (
            self.unit.removesuffix(".service")
            or {"containerd": "containerd", "crio": "crio", "docker": "docker"}[self.kind]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitFacts:
    """NVIDIA's toolkit on the node. `there`: INSTALL_DIR/toolkit leads to a folder."""

    folder: str
    there: bool = False
    config: str = ""  # config.toml, '' where there is none
    mode: str = ""
    default_kind: str = ""
    low_level: tuple[str, ...] = ()  # nvidia-container-runtime.runtimes
    own: tuple[str, ...] = ()  # those of them that lead back to the toolkit
    absent: tuple[str, ...] = ()  # those of them that are not on the node


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """A restore that driverctl armed on the node; `state` is its file's name: 'armed', 'firing', 'restored'."""

    path: str
    state: str
    watched: bool = False  # the driverctl that armed it still runs
    log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All of it. `live` is False for a dump, which has no processes."""

    live: bool
    toolkit: ToolkitFacts
    runtimes: tuple[RuntimeFacts, ...] = ()
    kubelet: bool = False
    kubelet_sockets: tuple[str, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)  # of k3s and rke2: path -> text
    missing_programs: tuple[str, ...] = ()  # programs of NVIDIA's handlers that are not on the node
    specs: tuple[SpecFile, ...] = ()
    gone: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # spec -> its host paths that are not there
    driver: str = ""  # version of the loaded module
    majors: Mapping[str, int] = field(default_factory=dict)
    numbers: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # device files of the driver
    unlinked: tuple[str, ...] = ()  # names that /dev/char lacks for them
    journal: tuple[Entry, ...] = ()
    rewritten: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # config -> files of the journal that are other bytes now
    journal_problem: tuple[str, ...] = ()
    restores: tuple[Restore, ...] = ()
    lock_held: bool = False  # a driverctl changes the runtime right now
    ready: tuple[str, ...] = ()  # names in /run/nvidia/validations
    logs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # where from -> lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """`what` is one sentence, `evidence` what it was seen by, `command` what cures it."""

    what: str
    evidence: tuple[str, ...]
    command: str
