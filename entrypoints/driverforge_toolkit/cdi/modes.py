"""What each mode puts into a spec: devices, and the edits that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from driverforge_core.errors import InputError, Unavailable
from driverforge_host.gpu.device_files import CONTROL, IMEX_CHANNEL, char_devices
from driverforge_host.gpu.roots import DriverView
from driverforge_host.ports import Gpu
from driverforge_toolkit.cdi.device_edits import management_devices, node_edits, unnumbered_node
from driverforge_toolkit.cdi.driverfiles import (
    EditOptions,
    driver_edits,
    graphics_edits,
    mounts,
    nvsdm_edits,
)
from driverforge_toolkit.cdi.gpu_devices import DeviceSelection, gpu_devices
from driverforge_toolkit.cdi.hooks import APPLICATION_PROFILE, NO_DEVICE_NODES
from driverforge_toolkit.cdi.libraries import DriverLibraries
from driverforge_toolkit.cdi.spec import ContainerEdits, SpecDevice, joined_edits

MAX_CHANNEL = 2**20 - 1
# for a container that is to have no GPU; runtimes refuse a device without edits
NO_DEVICE = SpecDevice(name="none", edits=ContainerEdits(env=("NVCT_EMPTY_DEVICE=",)))


class SpecMode(str, Enum):
    """What a spec describes; upstream's words. `auto` is `nvml` where NVML answers, else `static`."""

    AUTO = "auto"
    NVML = "nvml"
    STATIC = "static"
    MANAGEMENT = "management"
    IMEX = "imex"
    GDS = "gds"
    MOFED = "mofed"
    GDRCOPY = "gdrcopy"
    NVSWITCH = "nvswitch"
    CSV = "csv"
    WSL = "wsl"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecContent:
    """Devices and what all of them share."""

    devices: tuple[SpecDevice, ...]
    edits: ContainerEdits = field(default_factory=ContainerEdits)


def gpu_content(
    view: DriverView,
    driver: DriverLibraries,
    options: EditOptions,
    found: Iterable[Gpu],
    selection: DeviceSelection,
) -> SpecContent:
    """GPUs and MIG devices, with the control devices and the driver's files.

    Raises InputError for an unknown id.
    """
    devices = gpu_devices(view, options, found, selection)
    if NO_DEVICE.name in selection.ids:
        devices += (NO_DEVICE,)
    control = node_edits(view, char_devices(view, CONTROL), options)
    hooks = options.hooks
    last = ContainerEdits(hooks=(*hooks.make(NO_DEVICE_NODES), *hooks.make(APPLICATION_PROFILE)))
    files = (graphics_edits(view, driver, options), driver_edits(view, driver, options))
    return SpecContent(devices=devices, edits=joined_edits([control, *files, last]))


def management_content(view: DriverView, driver: DriverLibraries, options: EditOptions) -> SpecContent:
    """One device with everything. Raises Unavailable where there is no device file."""
    found = management_nodes(view)
    return SpecContent(
        devices=(SpecDevice(name="all", edits=node_edits(view, found, options)),),
        edits=joined_edits([driver_edits(view, driver, options), nvsdm_edits(view, driver)]),
    )


def management_nodes(view: DriverView) -> tuple[str, ...]:
    """Device files of a management container. Raises Unavailable where there are none."""
    found = tuple(management_devices(view))
    if not found:
        raise _no_nodes(view, "NVIDIA")
    return found


def imex_content(view: DriverView, ids: Iterable[str]) -> SpecContent:
    """A device for each IMEX channel, or for those in `ids`. Raises InputError, Unavailable.

    They have no numbers: channels come and go, and the runtime looks at the host's node when it starts a
    container.
    """
    channels = [path.removeprefix(IMEX_CHANNEL) for path in char_devices(view, [f"{IMEX_CHANNEL}*"])]
    wanted = [name.removeprefix("channel") for name in ids]
    if "all" not in wanted:
        problems = [problem for name in wanted if (problem := channel_problem(name, channels))]
        if problems:
            raise InputError(
                "no such IMEX channel", details=problems, resolution="name channels that are there, or all"
            )
        channels = wanted
    if not channels:
        raise _no_nodes(view, "IMEX channel")
    return SpecContent(
        devices=tuple(
            SpecDevice(
                name=name, edits=ContainerEdits(device_nodes=(unnumbered_node(view, IMEX_CHANNEL + name),))
            )
            for name in channels
        )
    )


def channel_problem(name: str, channels: Iterable[str]) -> str:
    """What is wrong with a channel's number; '' where nothing is."""
    if not (name.isascii() and name.isdigit()):
        return f"{name!r} is not the number of a channel"
    if int(name) > MAX_CHANNEL:
        return f"{name}: the largest channel is {MAX_CHANNEL}"
    return "" if name in channels else f"{IMEX_CHANNEL}{name} is not there"


def gds_content(view: DriverView, options: EditOptions) -> SpecContent:
    """GPUDirect Storage: the nvidia-fs devices, and what cuFile reads."""
    shared = [path for path in ("/run/udev", "/etc/cufile.json") if view.driver.exists(path)]
    return _plain_content(view, options, "GPUDirect Storage", ["/dev/nvidia-fs*"], shared)


def mofed_content(view: DriverView, options: EditOptions) -> SpecContent:
    return _plain_content(view, options, "RDMA", ["/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm"])


def gdrcopy_content(view: DriverView, options: EditOptions) -> SpecContent:
    return _plain_content(view, options, "GDRCopy", ["/dev/gdrdrv"])


def nvswitch_content(view: DriverView, options: EditOptions) -> SpecContent:
    return _plain_content(view, options, "NVSwitch", ["/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch*"])


# modes that need to know neither the driver's files nor its GPUs
SIMPLE: dict[SpecMode, Callable[[DriverView, EditOptions], SpecContent]] = {
    SpecMode.GDS: gds_content,
    SpecMode.MOFED: mofed_content,
    SpecMode.GDRCOPY: gdrcopy_content,
    SpecMode.NVSWITCH: nvswitch_content,
}


def _plain_content(
    view: DriverView, options: EditOptions, what: str, patterns: list[str], shared: Iterable[str] = ()
) -> SpecContent:
    found = char_devices(view, patterns)
    if not found:
        raise _no_nodes(view, what)
    edits = joined_edits([node_edits(view, found, options), ContainerEdits(mounts=mounts(view, shared))])
    return SpecContent(devices=(SpecDevice(name="all", edits=edits),))


def _no_nodes(view: DriverView, what: str) -> Unavailable:
    return Unavailable(
        f"no {what} device nodes found",
        details=[f"looked below {view.roots.dev_seen.rstrip('/')}/dev"],
        resolution="load the driver, make its nodes (driverctl devices nodes), "
        "and name the folder above dev/ with --dev-root",
    )
