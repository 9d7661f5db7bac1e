"""Parts that are a kernel module: GPUDirect Storage, GDRCopy, GPUDirect RDMA, the network driver."""

from __future__ import annotations

from driverforge_core.names import PEERMEM
from driverforge_core.validations import Component
from driverforge_host.gpu.detect import pci_devices
from driverforge_host.ports import Host
from driverforge_toolkit.validate.context import Context, NotValidated, Validated

EXTRAS = {Component.GDRCOPY: "gdrdrv", Component.NVIDIA_FS: "nvidia_fs", Component.PEERMEM: PEERMEM}
MELLANOX = 0x15B3
NETWORK_MODULES = ("mlx5_core", "mlx4_core")


def check(context: Context) -> Validated:
    """nvidia-fs, gdrcopy, nvidia-peermem."""
    component = context.settings.component
    seen = require_module(context.host, EXTRAS[component])
    return Validated(seen=seen, files={component.ready_file: ""})


def require_module(host: Host, name: str, *, switched_on_by: str = "") -> str:
    """Raises NotValidated where a module is not loaded."""
    if name in host.modules.loaded():
        return f"module {name} is loaded"
    details = [f"/proc/modules has no {name}"]
    if switched_on_by:
        details.append(f"{switched_on_by} says that it is switched on")
    raise NotValidated(
        f"the kernel module {name} is not loaded",
        details=details,
        resolution="look into the log of the driver pod's container that loads it, and into dmesg",
    )


def check_mofed(context: Context) -> Validated:
    """The network driver, where the node has a device for it."""
    devices = [d.address for d in pci_devices(context.host.files) if d.vendor == MELLANOX]
    if not devices:
        return Validated(seen="the node has no Mellanox device, so there is nothing to look at")
    loaded = context.host.modules.loaded()
    found = [name for name in NETWORK_MODULES if name in loaded]
    if not found:
        raise NotValidated(
            "the network driver is not loaded",
            details=[
                f"Mellanox devices: {', '.join(devices)}",
                f"none of {', '.join(NETWORK_MODULES)} is loaded",
            ],
            resolution="look whether the network operator's driver pod on this node is ready, or load the "
            "host's own driver (modprobe mlx5_core)",
        )
    return Validated(seen=f"module {found[0]} is loaded", files={Component.MOFED.ready_file: ""})
