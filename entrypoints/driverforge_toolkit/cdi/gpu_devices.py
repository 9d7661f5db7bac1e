"""The CDI devices of GPUs: one for each GPU, or for each MIG device where MIG is on, by each of its names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from driverforge_core import log
from driverforge_core.errors import InputError
from driverforge_host.gpu.device_files import CAPABILITY, char_devices, gpu_file
from driverforge_host.gpu.inventory import MIG_MINORS, parse_mig_minors
from driverforge_host.gpu.roots import DriverView
from driverforge_host.ports import Gpu, Mig, text_of
from driverforge_toolkit.cdi.conformance import valid_name
from driverforge_toolkit.cdi.device_edits import node_edits
from driverforge_toolkit.cdi.driverfiles import EditOptions
from driverforge_toolkit.cdi.hooks import CREATE_SYMLINKS
from driverforge_toolkit.cdi.spec import ContainerEdits, SpecDevice, joined_edits


class NameStrategy(str, Enum):
    """How a device is called: '0' or '0:1', its UUID, or 'gpu0' and 'mig0:1' (--device-name-strategy)."""

    INDEX = "index"
    UUID = "uuid"
    TYPE_INDEX = "type-index"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSelection:
    """Which devices a spec gets, and how they are called.

    `ids` are names of any strategy, 'all' or 'none'.
    """

    strategies: tuple[NameStrategy, ...] = (NameStrategy.INDEX, NameStrategy.UUID)
    ids: tuple[str, ...] = ("all",)


# GPUs of a DGX Station that only serve its display; nvidia-ctk leaves them out too
_DISPLAYS = ("DGX Display", "NVIDIA DGX Display")

# what a container can use: a GPU, or one of its MIG devices
Unit = tuple[Gpu] | tuple[Gpu, Mig]


def gpu_devices(
    view: DriverView, options: EditOptions, found: Iterable[Gpu], selection: DeviceSelection
) -> tuple[SpecDevice, ...]:
    """The devices of the selected GPUs and MIG devices.

    Raises InputError for an id that names none of them.
    """
    units = [unit for gpu in found if gpu.model not in _DISPLAYS for unit in _units(gpu)]
    names = [set(device_names(NameStrategy, *unit)) for unit in units]
    known = set().union(*names)
    if strange := [name for name in selection.ids if name not in {"all", "none"} | known]:
        raise InputError(
            f"no GPU or MIG device {', '.join(strange)}",
            details=[f"there are {', '.join(sorted(known)) or 'none'}"],
            resolution="name one of these with --device-id, or all",
        )
    minors = parse_mig_minors(text_of(view.system, MIG_MINORS))
    return tuple(
        device
        for unit, own in zip(units, names, strict=True)
        if "all" in selection.ids or own & set(selection.ids)
        for device in _devices_of(view, options, minors, unit, selection)
    )


def _units(gpu: Gpu) -> Iterator[Unit]:
    """With MIG on, a whole GPU cannot be used: only its MIG devices are devices."""
    if not gpu.mig_enabled:
        yield (gpu,)
    for mig in gpu.migs:
        yield gpu, mig


def _has_graphics(unit: Unit) -> bool:
    """A GPU has graphics; a MIG device only if it was made with a profile for that."""
    return len(unit) == 1 or unit[1].graphics


def _devices_of(
    view: DriverView,
    options: EditOptions,
    minors: Mapping[str, int],
    unit: Unit,
    selection: DeviceSelection,
) -> Iterator[SpecDevice]:
    """A device for each name of the unit; all of them have the same edits."""
    gpu = unit[0]
    file = gpu_file(gpu.minor)
    if not view.dev.device_number(file):
        log.warning("a GPU has no device file and is left out", gpu=gpu.index, file=file)
        return
    drm = drm_nodes(view, gpu) if _has_graphics(unit) else ()
    capabilities = mig_nodes(minors, *unit) if len(unit) == 2 else ()
    nodes = node_edits(view, (file, *drm, *char_devices(view, capabilities)), options)
    links = ContainerEdits(hooks=options.hooks.make(CREATE_SYMLINKS, *drm_links(view, gpu, drm)))
    for name in device_names(selection.strategies, *unit):
        yield SpecDevice(name=name, edits=joined_edits([nodes, links]))


def device_names(strategies: Iterable[NameStrategy], gpu: Gpu, mig: Mig | None = None) -> tuple[str, ...]:
    """The CDI names of a GPU or MIG device. A MIG device without an index is called '0:gi1:ci0'.

    A UUID that is no name in CDI is left out: runtimes refuse a whole spec for one.
    """
    found = []
    for strategy in strategies:
        match strategy:
            case NameStrategy.UUID:
                found.append(mig.uuid if mig else gpu.uuid)
            case NameStrategy.INDEX:
                found.append(f"{gpu.index}{_mig_part(mig)}")
            case NameStrategy.TYPE_INDEX:
                found.append(f"{'mig' if mig else 'gpu'}{gpu.index}{_mig_part(mig)}")
    return tuple(name for name in dict.fromkeys(found) if valid_name(name))


def _mig_part(mig: Mig | None) -> str:
    if mig is None:
        return ""
    return f":{mig.index}" if mig.index is not None else f":gi{mig.gpu_instance}:ci{mig.compute_instance}"


def mig_nodes(minors: Mapping[str, int], gpu: Gpu, mig: Mig) -> tuple[str, ...]:
    """The capability devices that open this MIG device.

    A capability without a number is left out, with a warning.
    """
    instance = f"gpu{gpu.minor}/gi{mig.gpu_instance}"
    wanted = (f"{instance}/access", f"{instance}/ci{mig.compute_instance}/access")
    missing = [name for name in wanted if name not in minors]
    if missing:
        log.warning(
            "the driver lists no device for a MIG capability", missing=",".join(missing), file=MIG_MINORS
        )
    return tuple(f"{CAPABILITY}{minors[name]}" for name in wanted if name in minors)


def drm_nodes(view: DriverView, gpu: Gpu) -> tuple[str, ...]:
    """/dev/dri/card* and renderD* of a GPU, by its PCI address."""
    names = view.system.list_dir(f"/sys/bus/pci/devices/{gpu.bus_id}/drm") if gpu.bus_id else ()
    paths = [f"/dev/dri/{name}" for name in names if name.startswith(("card", "renderD"))]
    return tuple(path for path in paths if view.dev.device_number(path))


def drm_links(view: DriverView, gpu: Gpu, nodes: Iterable[str]) -> tuple[str, ...]:
    """Links in /dev/dri/by-path that lead to one of `nodes`, as the create-symlinks hook takes them.

    One is 'TARGET::LINK', with the target relative to the link.
    """
    found = []
    for kind in ("card", "render"):
        link = f"/dev/dri/by-path/pci-{gpu.bus_id}-{kind}"
        target = view.dev.resolve(link)
        if view.dev.is_link(link) and target in nodes:
            found.append(f"../{target.removeprefix('/dev/dri/')}::{link}")
    return tuple(found)
