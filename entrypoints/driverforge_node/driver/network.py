"""What nvidia-peermem needs of a node's network driver: a device, InfiniBand in the kernel, and the driver's build files.

NVIDIA's operator sets GPU_DIRECT_RDMA_ENABLED for all nodes, so the node says whether there is anything to do. nvidia-peermem registers
with functions that only MOFED's (or DOCA's) ib_core and a few distributions' kernels have: it is compiled against that one's
Module.symvers, and its init returns EINVAL where it was not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from driverforge_core.pci import PciDevice
from driverforge_node.driver.facts import BuildFiles, Network
from driverforge_node.host.ports import Host

MELLANOX = 0x15B3
# the one place where conftest.sh and Kbuild of NVIDIA's sources look: <arch>/<release>, <release>, default
OFED = "/usr/src/ofa_kernel"
# of the network driver's container; for one on the host, NVIDIA's operator mounts the host's /usr/src here
MOUNTED = "/run/mellanox/drivers/usr/src/ofa_kernel"
INFINIBAND = "/sys/class/infiniband"  # made by ib_core, a module or not
SYMBOLS = "Module.symvers"


def look(host: Host, release: str, devices: Iterable[PciDevice], *, on_host: bool) -> Network:
    """The network driver of this node. `on_host`: it is installed there, not in a container (USE_HOST_MOFED)."""
    addresses = tuple(device.address for device in devices if device.vendor == MELLANOX)
    if not addresses:
        return Network()
    return Network(
        devices=addresses,
        ready=host.files.exists(INFINIBAND),
        build_files=find(host, release, on_host=on_host),
    )


def find(host: Host, release: str, *, on_host: bool) -> BuildFiles | None:
    """The network driver's build files for a kernel release; None where there are none (the kernel's own symbols count then)."""
    for folder in places(host, release, on_host=on_host):
        if host.files.exists(f"{folder}/{SYMBOLS}"):
            symbols = host.files.read_bytes(f"{folder}/{SYMBOLS}")
            return BuildFiles(folder=folder, identity=f"sha256:{hashlib.sha256(symbols).hexdigest()}")
    return None


def places(host: Host, release: str, *, on_host: bool) -> Iterator[str]:
    nodes = (f"{host.node.root.rstrip('/')}{OFED}",) if on_host else ()
    for base in (MOUNTED, *nodes, OFED):
        for name in (f"x86_64/{release}", f"aarch64/{release}", release, "default"):
            yield f"{base}/{name}"


def link(host: Host, files: BuildFiles, release: str) -> None:
    """Let NVIDIA's build find them. In a folder of the container's own: nothing is written among the network driver's files."""
    name = f"{OFED}/{release}"
    if host.files.identity(name) != host.files.identity(files.folder):
        host.files.make_dirs(OFED)
        host.files.symlink(files.folder, name)
