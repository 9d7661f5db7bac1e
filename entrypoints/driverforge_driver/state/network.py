"""What nvidia-peermem needs of a node: a network device, InfiniBand, the network driver's build files.

NVIDIA's operator sets GPU_DIRECT_RDMA_ENABLED for all nodes at once, so each node finds out for itself
whether there is anything to do.

nvidia-peermem registers itself with functions of ib_core that only MOFED's (or DOCA's) version and a few
distributions' kernels have. So it has to be compiled against the Module.symvers of that ib_core. Where it was
not, its init function returns EINVAL and modprobe fails.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from driverforge_host.gpu.pci import PciDevice
from driverforge_host.ports import Host

MELLANOX = 0x15B3
# The one folder in which conftest.sh and Kbuild of NVIDIA's sources look: for <arch>/<release>, <release>,
# default.
OFED = "/usr/src/ofa_kernel"
# The same folder of the network driver's container. Where that driver is installed on the host, NVIDIA's
# operator mounts the host's /usr/src here.
MOUNTED = "/run/mellanox/drivers/usr/src/ofa_kernel"
# there as soon as ib_core runs, be it a module or built in
INFINIBAND = "/sys/class/infiniband"
SYMBOLS = "Module.symvers"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkBuildFiles:
    """Files of a network driver (MOFED, DOCA) that modules of one kernel are compiled against."""

    # it holds Module.symvers and include/
    folder: str
    # 'sha256:<hex>' of Module.symvers
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What this node has for nvidia-peermem; empty where nobody asked for it."""

    # PCI addresses of the network devices that it can serve
    devices: tuple[str, ...] = ()
    # whether the kernel has InfiniBand loaded
    ready: bool = False
    build_files: NetworkBuildFiles | None = None


def observe_network(host: Host, release: str, devices: Iterable[PciDevice], *, on_host: bool) -> Network:
    """The network devices and driver of this node.

    `on_host` says that the driver is installed on the host, not in a container (USE_HOST_MOFED).
    """
    addresses = tuple(device.address for device in devices if device.vendor == MELLANOX)
    if not addresses:
        return Network()
    return Network(
        devices=addresses,
        ready=host.files.exists(INFINIBAND),
        build_files=find_build_files(host, release, on_host=on_host),
    )


def find_build_files(host: Host, release: str, *, on_host: bool) -> NetworkBuildFiles | None:
    """The network driver's build files for a kernel release.

    None where there are none: nvidia-peermem is compiled against the kernel's own symbols then.
    """
    for folder in build_file_folders(host, release, on_host=on_host):
        if host.files.exists(f"{folder}/{SYMBOLS}"):
            symbols = host.files.read_bytes(f"{folder}/{SYMBOLS}")
            return NetworkBuildFiles(folder=folder, identity=f"sha256:{hashlib.sha256(symbols).hexdigest()}")
    return None


def build_file_folders(host: Host, release: str, *, on_host: bool) -> Iterator[str]:
    """Folders that may hold the build files of a kernel release, the network driver's container first."""
    nodes = (f"{host.node.root.rstrip('/')}{OFED}",) if on_host else ()
    for base in (MOUNTED, *nodes, OFED):
        for name in (f"x86_64/{release}", f"aarch64/{release}", release, "default"):
            yield f"{base}/{name}"


def link_build_files(host: Host, files: NetworkBuildFiles, release: str) -> None:
    """Let NVIDIA's build find the files: a link for the release, in the container's own /usr/src/ofa_kernel.

    Upstream links that whole folder to the network driver's, and then writes the link among that driver's
    files.
    """
    name = f"{OFED}/{release}"
    if host.files.identity(name) != host.files.identity(files.folder):
        host.files.make_dirs(OFED)
        host.files.symlink(files.folder, name)
