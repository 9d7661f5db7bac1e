"""What each mode puts into a spec. A mode is a function from the view of a node and a wish to devices and common edits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from driverforge_core.errors import InputError, Unavailable
from driverforge_node import log
from driverforge_node.cdi import gpus as gpu_facts
from driverforge_node.cdi.driverfiles import Wish, driver_edits, graphics_edits, mounts
from driverforge_node.cdi.gpus import Gpu, Mig
from driverforge_node.cdi.hooks import APPLICATION_PROFILE, CREATE_SYMLINKS, NO_DEVICE_NODES
from driverforge_node.cdi.libraries import Driver
from driverforge_node.cdi.nodes import CONTROL, IMEX, char_devices, management_devices, node_edits, plain_node
from driverforge_node.cdi.roots import View, read
from driverforge_node.cdi.spec import Device, Edits, joined

MAX_CHANNEL = 2**20 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Devices and what all of them share."""

    devices: tuple[Device, ...]
    edits: Edits = field(default_factory=Edits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which devices, and how they are called."""

    strategies: tuple[str, ...] = ("index", "uuid")
    ids: tuple[str, ...] = ("all",)


def gpu_content(
    view: View, driver: Driver, wish: Wish, found: Iterable[Gpu], selection: Selection
) -> Content:
    """A device for each GPU without MIG and each MIG device, by each of its names. Raises InputError for an id that is not there."""
    minors = gpu_facts.parse_mig_minors(read(view.system, gpu_facts.MIG_MINORS))
    units = [unit for gpu in found for unit in _units(gpu)]
    chosen = [
        unit
        for unit in units
        if "all" in selection.ids or set(selection.ids) & set(gpu_facts.names(gpu_facts.STRATEGIES, *unit))
    ]
    known = {name for unit in units for name in gpu_facts.names(gpu_facts.STRATEGIES, *unit)}
    if strange := [name for name in selection.ids if name not in {"all", "none"} | known]:
        raise InputError(
            f"no GPU or MIG device {', '.join(strange)}",
            details=[f"there are {', '.join(sorted(known)) or 'none'}"],
            resolution="name one of these with --device-id, or all",
        )
    devices = tuple(chain.from_iterable(_gpu_devices(view, wish, minors, unit, selection) for unit in chosen))
    if "none" in selection.ids:
        devices += (Device(name="none", edits=Edits(env=("NVCT_EMPTY_DEVICE=",))),)
    control = node_edits(view, char_devices(view, CONTROL), wish.hooks, flags=wish.flags)
    last = Edits(hooks=(*wish.hooks.make(NO_DEVICE_NODES), *wish.hooks.make(APPLICATION_PROFILE)))
    return Content(
        devices=devices,
        edits=joined([control, graphics_edits(view, driver, wish), driver_edits(view, driver, wish), last]),
    )


Unit = tuple[Gpu] | tuple[Gpu, Mig]


def _units(gpu: Gpu) -> Iterator[Unit]:
    """With MIG on, a whole GPU cannot be used: only its MIG devices are devices."""
    if not gpu.mig_enabled:
        yield (gpu,)
    for mig in gpu.migs:
        yield gpu, mig


def _gpu_devices(
    view: View, wish: Wish, minors: dict[str, int], unit: Unit, selection: Selection
) -> Iterator[Device]:
    gpu = unit[0]
    node = f"/dev/nvidia{gpu.minor}"
    if not view.dev.device_number(node):
        log.warning("a GPU has no device file and is left out", gpu=gpu.index, file=node)
        return
    drm = gpu_facts.drm_nodes(view, gpu)
    caps = gpu_facts.mig_nodes(minors, *unit) if len(unit) == 2 else ()
    nodes = node_edits(view, (node, *drm, *char_devices(view, caps)), wish.hooks, flags=wish.flags)
    links = Edits(hooks=wish.hooks.make(CREATE_SYMLINKS, *gpu_facts.drm_links(view, gpu, drm)))
    for name in gpu_facts.names(selection.strategies, *unit):
        yield Device(name=name, edits=joined([nodes, links]))


def management_content(view: View, driver: Driver, wish: Wish) -> Content:
    """One device with everything. Raises Unavailable where there is no device file."""
    found = management_nodes(view)
    return Content(
        devices=(Device(name="all", edits=node_edits(view, found, wish.hooks, flags=wish.flags)),),
        edits=driver_edits(view, driver, wish),
    )


def management_nodes(view: View) -> tuple[str, ...]:
    """Device files of a management container. Raises Unavailable where there are none."""
    found = tuple(management_devices(view))
    if not found:
        raise _no_nodes(view, "NVIDIA")
    return found


def imex_content(view: View, ids: Iterable[str]) -> Content:
    """A device for each IMEX channel, without numbers: channels come and go, and the runtime looks at the host's node then."""
    channels = [path.removeprefix(IMEX) for path in char_devices(view, [f"{IMEX}*"])]
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
    return Content(
        devices=tuple(
            Device(name=name, edits=Edits(device_nodes=(plain_node(view, IMEX + name),))) for name in channels
        )
    )


def channel_problem(name: str, channels: Iterable[str]) -> str:
    """What is wrong with a channel's number; '' where nothing is."""
    if not (name.isascii() and name.isdigit()):
        return f"{name!r} is no channel's number"
    if int(name) > MAX_CHANNEL:
        return f"{name}: the largest channel is {MAX_CHANNEL}"
    return "" if name in channels else f"{IMEX}{name} is not there"


def gds_content(view: View, wish: Wish) -> Content:
    """GPUDirect Storage: the nvidia-fs devices, and what cuFile reads."""
    shared = [path for path in ("/run/udev", "/etc/cufile.json") if view.driver.exists(path)]
    return _plain_content(view, wish, "GPUDirect Storage", ["/dev/nvidia-fs*"], shared)


def mofed_content(view: View, wish: Wish) -> Content:
    return _plain_content(view, wish, "RDMA", ["/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm"])


def gdrcopy_content(view: View, wish: Wish) -> Content:
    return _plain_content(view, wish, "GDRCopy", ["/dev/gdrdrv"])


def nvswitch_content(view: View, wish: Wish) -> Content:
    return _plain_content(view, wish, "NVSwitch", ["/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch*"])


Simple = Callable[[View, Wish], Content]
SIMPLE: dict[str, Simple] = {
    "gds": gds_content,
    "mofed": mofed_content,
    "gdrcopy": gdrcopy_content,
    "nvswitch": nvswitch_content,
}


def _plain_content(
    view: View, wish: Wish, what: str, patterns: list[str], shared: Iterable[str] = ()
) -> Content:
    found = char_devices(view, patterns)
    if not found:
        raise _no_nodes(view, what)
    edits = joined(
        [node_edits(view, found, wish.hooks, flags=wish.flags), Edits(mounts=mounts(view, shared))]
    )
    return Content(devices=(Device(name="all", edits=edits),))


def _no_nodes(view: View, what: str) -> Unavailable:
    return Unavailable(
        f"no {what} device nodes found",
        details=[f"looked below {view.roots.dev_seen.rstrip('/')}/dev"],
        resolution="load the driver, make its nodes (driverctl devices nodes), and name the folder above dev/ with --dev-root",
    )
