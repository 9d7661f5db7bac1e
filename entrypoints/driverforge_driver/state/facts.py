"""What is so on this node and what is wanted of it, as frozen values.

`observe` and `wanted_driver` fill them, `plan` judges them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from driverforge_core.image import ImageFacts
from driverforge_driver.state.daemons import DaemonProgram
from driverforge_driver.state.module_sets import ModuleSource
from driverforge_driver.state.network import Network
from driverforge_driver.state.records import KernelJournal, RunningDaemon
from driverforge_driver.state.variables import WantedModuleType
from driverforge_host.gpu.pci import PciDevice
from driverforge_host.ports import Holder, LoadedModule


class Goal(Enum):
    """What the driver of the node should come to."""

    # `init`: loaded, its root published, its status written
    SERVE = "serve"
    # `load`: loaded, with device files
    LOAD = "load"
    # `unload`: gone; refused while somebody uses it
    ABSENT = "absent"
    # the end of `init`: gone, but for modules that somebody uses
    STOPPED = "stopped"

    @property
    def loads(self) -> bool:
        """Whether a driver is to be there at the end."""
        return self in (Goal.SERVE, Goal.LOAD)


class RootState(Enum):
    """What is mounted at /run/nvidia/driver."""

    ABSENT = "absent"
    OURS = "ours"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """One observation. All paths are as our own process sees them."""

    # effective user id
    user: int
    # kernel release, as `uname -r` prints it
    release: str
    image: ImageFacts | None
    # whether this kernel can load modules at all
    modular: bool = True
    # releases that the image has modules for
    image_kernels: tuple[str, ...] = ()
    # module sets for this release and the wanted driver, the image's before the cache's
    sources: tuple[ModuleSource, ...] = ()
    # entries of the node's cache that cannot be taken: '<path>: <why>'
    unusable_sets: tuple[str, ...] = ()
    # folder of this release's in-tree modules, '' where the node has none that we can see
    node_modules: str = ""
    # the root of the load tree, as `modprobe -d` takes it
    load_base: str = "/"
    gpus: tuple[PciDevice, ...] = ()
    # PCI addresses
    nvswitches: tuple[str, ...] = ()
    network: Network = field(default_factory=Network)
    # NVIDIA's modules and all that depend on them
    loaded: Mapping[str, LoadedModule] = field(default_factory=dict)
    # 'open', 'proprietary', '' when not loaded
    loaded_type: str = ""
    # character devices of /proc/devices whose name starts with nvidia
    majors: Mapping[str, int] = field(default_factory=dict)
    # (path, major, minor) that should be in /dev and are not
    devices_missing: tuple[tuple[str, int, int], ...] = ()
    root: RootState = RootState.ABSENT
    # whether a killed run left mounts in the folder where the root is prepared
    stage_left: bool = False
    # whether the host sees mounts that we make under /run/nvidia
    root_shared: bool = True
    # whether SELinux keeps containers from the root's device files
    lacks_label: bool = False
    # what the startup probe of NVIDIA's operator reads: 'Ready', 'NotReady', '' where there is no file
    daemons_status: str = ""
    # configuration digest under which the loaded driver was verified, '' where none was
    digest: str = ""
    journal: KernelJournal = field(default_factory=KernelJournal)
    # what the load tree was filled with (`loadtree.stamp`), '' where it is not whole
    stamp: str = ""
    # modprobe.d file name -> text
    parameter_files: Mapping[str, str] = field(default_factory=dict)
    # firmware files of the image that are missing or different in /lib/firmware/nvidia/<driver>
    firmware_missing: tuple[str, ...] = ()
    # the kernel's extra search path; None: this kernel has none
    firmware_path: str | None = None
    # processes with an NVIDIA device open, our own daemons left out
    holders: tuple[Holder, ...] = ()
    daemons: tuple[RunningDaemon, ...] = ()
    # module -> references that our daemons have on it
    daemon_references: Mapping[str, int] = field(default_factory=dict)
    # daemons that the image has and that do not run
    daemons_down: tuple[DaemonProgram, ...] = ()
    # PCI addresses of the GPUs that the loaded driver drives
    driven: tuple[str, ...] = ()
    # why the kernel takes only signed modules, '' when it takes any
    enforced: str = ""
    # identifiers of the keys that such a kernel has; none where they cannot be seen
    kernel_keys: frozenset[str] = frozenset()
    # whether files of ours are left in /run/nvidia
    state_left: bool = False
    # bytes that we may still write to the load tree's file system
    free: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedDriver:
    """What the driver of the node should come to, from the command and the settings."""

    goal: Goal
    driver: str = ""
    module_type: WantedModuleType = WantedModuleType.AUTO
    # kernel names of the modules, in the order to insert them
    names: tuple[str, ...] = ()
    # nvidia-peermem as well, where this node can use it
    peermem: bool = False
    # the network driver (MOFED, DOCA) is installed on the host, not in a container
    mofed_on_host: bool = False
    # module -> parameters, as the operator gave them
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # configuration digest: the operator's, else our own
    digest: str = ""
    # whether a driver that the host loaded may be unloaded
    take_over: bool = False
    # names of daemons that could not be started: the driver goes without them
    without: tuple[str, ...] = ()
    # the root's device files cannot be labelled
    unlabelled: bool = False
    # the kernel release that has to run, '' for any
    kernel: str = ""
    # whether modules may be compiled here
    may_build: bool = True
    # compilers to run at once; 0: as many as there are processors
    jobs: int = 0
    # folder with the header packages; '': fetch them
    headers: str = ""
    # folder to compile in; '': the default
    work: str = ""
