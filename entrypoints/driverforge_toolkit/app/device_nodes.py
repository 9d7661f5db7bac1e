"""`driverctl devices`: make the driver's device files, and the links to them in /dev/char."""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_core import log
from driverforge_host.gpu.device_files import (
    EVERY,
    PROC_DEVICES,
    DeviceFile,
    capability_files,
    char_devices,
    control_files,
    device_majors,
    gpu_files,
)
from driverforge_host.gpu.inventory import MIG_MINORS, parse_mig_minors, static_gpus
from driverforge_host.gpu.roots import DriverRoots, DriverView
from driverforge_host.ports import Host, text_of
from driverforge_toolkit.devices import repair
from driverforge_toolkit.devices.repair import FileRepair, LinkRepair

MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """What is asked for. With `plan` nothing is loaded or made."""

    roots: DriverRoots
    plan: bool = False
    load_modules: bool = False  # from the driver root, before anything else


def make_nodes(host: Host, request: DeviceRequest, *, gpus: bool) -> tuple[FileRepair, ...]:
    """Make or correct the control device files, and with `gpus` those of the GPUs; returns what was done.

    Raises Unavailable where no driver is loaded, StorageFailed where something else is in the place of one.
    """
    view = _prepared(host, request)
    majors = _majors(view)
    if "nvidia-uvm" not in majors:
        log.warning("the module nvidia_uvm is not loaded; its device files are left out")
    wanted = control_files(majors) + (gpu_files(majors, _gpu_minors(view)) if gpus else ())
    repairs = repair.plan_files(view.dev, wanted)
    if not request.plan:
        repair.make_files(view.dev, repairs)
    return repairs


def make_links(
    host: Host, request: DeviceRequest, *, folder: str, create_all: bool
) -> tuple[LinkRepair, ...]:
    """Make or correct the links in `folder` to the device files of the dev root; returns what was done.

    With `create_all` also to files that are to come. Raises StorageFailed where something else has such a
    name.
    """
    view = _prepared(host, request)
    wanted = files_to_link(view, create_all=create_all)
    repairs = repair.plan_links(host.node, folder, wanted, dev_root=view.roots.dev_host)
    if not request.plan:
        repair.make_links(host.node, repairs)
    return repairs


def _prepared(host: Host, request: DeviceRequest) -> DriverView:
    """The roots as files, with the modules loaded where that was asked for.

    A pod has a /dev of its own, so the dev root is the node's.
    """
    roots = request.roots
    if request.load_modules and not request.plan:
        for name in MODULES:
            host.modules.insert(name, base=roots.driver_seen)
    driver, dev = host.files.under(roots.driver_seen), host.node.under(roots.dev_host)
    return DriverView(roots=roots, system=host.files, driver=driver, dev=dev)


def files_to_link(view: DriverView, *, create_all: bool) -> list[DeviceFile]:
    """The device files that are there; with `create_all` also those that are to come."""
    numbers = [(path, view.dev.device_number(path)) for path in char_devices(view, EVERY)]
    there = [DeviceFile(path=path, major=found[0], minor=found[1]) for path, found in numbers if found]
    if not create_all:
        return there
    majors = _majors(view)
    capabilities = parse_mig_minors(text_of(view.system, MIG_MINORS)).values()
    coming = (
        *control_files(majors),
        *gpu_files(majors, _gpu_minors(view)),
        *capability_files(majors, capabilities),
    )
    known = {file.path for file in there}
    return [*there, *(file for file in coming if file.path not in known)]


def _majors(view: DriverView) -> dict[str, int]:
    return device_majors(text_of(view.system, PROC_DEVICES))


def _gpu_minors(view: DriverView) -> list[int]:
    return [gpu.minor for gpu in static_gpus(view)]
