"""What is so on this node: frozen values, filled by observe.py, judged by plan.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driverforge_core.image import ImageFacts, ModuleSet
from driverforge_core.pci import PciDevice
from driverforge_node.host.ports import Holder, LoadedModule


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A module set for this kernel release that could be loaded now."""

    place: str  # 'image' or 'cache' (the node's)
    path: str  # folder that holds the .ko files, as our own process sees it
    modules: ModuleSet
    signer: str  # who signed nvidia.ko, '' when it has no signature
    parameters: frozenset[str]  # parameters that nvidia.ko takes
    size: int  # bytes of all its files


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """What observation cannot recover."""

    loading: str = (
        ""  # configuration digest under which modules were inserted since the last time none were loaded
    )
    firmware_path_before: str | None = (
        None  # the kernel's firmware search path before we set it; None: we did not
    )
    firmware: tuple[str, ...] = ()  # firmware files that we wrote


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A daemon of ours that runs."""

    name: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFiles:
    """A network driver's files that modules are compiled against (MOFED's or DOCA's, for one kernel release)."""

    folder: str  # has Module.symvers and include/
    identity: str  # 'sha256:<hex>' of Module.symvers


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What nvidia-peermem needs of the node; empty where nobody asked for it."""

    devices: tuple[str, ...] = ()  # PCI addresses of network devices that it can serve
    ready: bool = False  # whether the kernel has InfiniBand loaded
    build_files: BuildFiles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One observation. All paths are as our own process sees them."""

    user: int
    release: str
    image: ImageFacts | None
    modular: bool = True  # whether this kernel can load modules at all
    image_kernels: tuple[str, ...] = ()  # releases that the image has modules for
    sources: tuple[Source, ...] = ()  # for this release and the wanted driver, the image's first
    node_modules: str = (
        ""  # folder of this release's in-tree modules, '' where the node has none that we can see
    )
    load_base: str = "/"  # what modprobe -d gets
    gpus: tuple[PciDevice, ...] = ()
    nvswitches: tuple[str, ...] = ()  # their PCI addresses
    network: Network = field(default_factory=Network)
    loaded: Mapping[str, LoadedModule] = field(
        default_factory=dict
    )  # NVIDIA's modules and all that depend on them
    loaded_type: str = ""  # 'open', 'proprietary', '' when not loaded
    majors: Mapping[str, int] = field(
        default_factory=dict
    )  # character devices of /proc/devices whose name starts with nvidia
    devices_missing: tuple[
        tuple[str, int, int], ...
    ] = ()  # (path, major, minor) that should be in /dev and are not
    root: str = "absent"  # what is mounted at /run/nvidia/driver: 'absent', 'ours', 'other'
    stage_left: bool = (
        False  # whether a run that was killed left mounts at the place where the root is prepared
    )
    root_shared: bool = True  # whether the host sees mounts that we make under /run/nvidia
    daemons_status: str = ""
    digest: str = ""
    journal: Journal = field(default_factory=Journal)
    stamp: str = ""  # what the load tree was filled with
    parameter_files: Mapping[str, str] = field(default_factory=dict)  # modprobe.d file name -> text
    firmware_missing: tuple[str, ...] = ()  # files of the image that are not in /lib/firmware/nvidia/<driver>
    firmware_path: str | None = None  # the kernel's extra search path; None: this kernel has none
    holders: tuple[Holder, ...] = ()  # processes with an NVIDIA device open, our own daemons left out
    daemons: tuple[Daemon, ...] = ()
    enforced: str = ""  # why the kernel takes only signed modules, '' when it takes any
    state_left: bool = False  # whether files of ours are left in /run/nvidia
    free: int = 0  # bytes that we may write under /lib/modules


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the node should come to, from the command and the settings."""

    goal: str  # 'serve', 'load', 'absent' (refuse when in use), 'stopped' (leave what is in use)
    driver: str = ""
    module_type: str = "auto"
    names: tuple[str, ...] = ()  # modules in the order to insert them
    peermem: bool = False  # nvidia-peermem as well, where this node can use it
    host_network: bool = False  # the network driver is installed on the host, not in a container
    parameters: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # module -> parameters, as the operator gave them
    digest: str = ""
    may_build: bool = True
    jobs: int = 0  # for a compilation; 0: as many as there are processors
    headers: str = ""  # folder with the header packages for a compilation; '': fetch them
    work: str = ""  # folder to compile in; '': the default
