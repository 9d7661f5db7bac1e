"""From a request to a spec file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from posixpath import dirname

from driverforge_core import log
from driverforge_core.errors import Unavailable, Unsupported
from driverforge_host.gpu import inventory
from driverforge_host.gpu.detect import loaded_version
from driverforge_host.gpu.roots import DriverRoots, DriverView, view_of
from driverforge_host.ports import Files, Gpu, Host, Nvml
from driverforge_toolkit.cdi import modes, specfiles, stale, transform
from driverforge_toolkit.cdi.conformance import file_name, split_kind
from driverforge_toolkit.cdi.driverfiles import EditOptions
from driverforge_toolkit.cdi.gpu_devices import DeviceSelection
from driverforge_toolkit.cdi.hooks import HookProgram
from driverforge_toolkit.cdi.libraries import DriverLibraries, locate
from driverforge_toolkit.cdi.modes import SpecMode
from driverforge_toolkit.cdi.spec import ContainerEdits, Spec, SpecDevice, SpecMount, joined_edits
from driverforge_toolkit.cdi.specfiles import SpecFormat

# upstream's modes for systems that are no nodes of ours
ELSEWHERE = {SpecMode.CSV: "Tegra systems", SpecMode.WSL: "Windows"}
MODES = tuple(mode for mode in SpecMode if mode not in ELSEWHERE)

_KINDS = {
    SpecMode.MANAGEMENT: "management.nvidia.com/gpu",
    SpecMode.IMEX: "nvidia.com/imex-channel",
    **{mode: f"nvidia.com/{mode.value}" for mode in modes.SIMPLE},
}
# A container that asks NVIDIA's runtime for devices, too, would get them once more: images set the variable,
# and with accept-nvidia-visible-devices-as-volume-mounts a pod's volumes ask (toolkit 1.20.2).
_ALWAYS = ContainerEdits(
    env=("NVIDIA_VISIBLE_DEVICES=void",),
    mounts=(
        SpecMount(
            host_path="/dev/null",
            container_path="/var/run/nvidia-container-devices/void",
            options=("ro", "nosuid", "nodev", "bind"),
        ),
    ),
)

MakeNvml = Callable[[str], Nvml]  # from libnvidia-ml's path, '' where it was not found


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRequest:
    """What a spec shall describe, and how. An empty `kind` is the mode's own."""

    mode: SpecMode = SpecMode.AUTO
    kind: str = ""
    roots: DriverRoots = field(default_factory=DriverRoots)
    options: EditOptions = field(default_factory=lambda: EditOptions(hooks=HookProgram()))
    selection: DeviceSelection = field(default_factory=DeviceSelection)
    merged: bool = True  # a device 'all'
    library_folders: tuple[str, ...] = ()


def default_kind(mode: SpecMode) -> str:
    return _KINDS.get(mode, "nvidia.com/gpu")


def make_spec(host: Host, request: SpecRequest, nvml: MakeNvml) -> Spec:
    """The spec of a request, with host paths as the host has them.

    Raises Unavailable where what it describes is not there, InputError for an unknown device or a wrong kind,
    Unsupported for a mode of other systems.
    """
    if request.mode in ELSEWHERE:
        raise Unsupported(
            f"the mode {request.mode.value} is for {ELSEWHERE[request.mode]}",
            resolution="use NVIDIA's nvidia-ctk there, or another mode",
        )
    kind = request.kind or default_kind(request.mode)
    split_kind(kind)
    seen = view_of(host, request.roots)
    content = _content(seen, request, nvml)
    if not content.devices:
        raise Unavailable(
            "there is no device that a container could get",
            details=["every GPU has MIG enabled without a MIG device, or has no device file /dev/nvidiaN"],
            resolution="make the device files (driverctl devices nodes) or MIG devices "
            "(nvidia-smi mig -cgi … -C), then run this again",
        )
    devices = _with_all(content.devices) if request.merged else content.devices
    spec = Spec(version="", kind=kind, devices=devices, edits=content.edits)
    spec = _with_host_paths(transform.simplified(spec), request.roots)
    # the node's own /dev/null, whatever the root of the driver's devices is
    return transform.in_order(replace(spec, edits=joined_edits([spec.edits, _ALWAYS])))


def _with_all(devices: tuple[SpecDevice, ...]) -> tuple[SpecDevice, ...]:
    """The devices, and one of all that are any."""
    found = [device for device in devices if device != modes.NO_DEVICE]
    return (*transform.with_merged_device(found), *(device for device in devices if device not in found))


def _with_host_paths(spec: Spec, roots: DriverRoots) -> Spec:
    """The spec with the host's paths in the place of ours."""
    driver, dev = (roots.driver_seen, roots.driver), (roots.dev_seen, roots.dev_host)
    same = driver[0] == driver[1] and dev[0] == dev[1]
    return spec if same else transform.driver_moved(spec, driver=driver, dev=dev)


def _content(seen: DriverView, request: SpecRequest, nvml: MakeNvml) -> modes.SpecContent:
    options = request.options
    if request.mode in modes.SIMPLE:
        return modes.SIMPLE[request.mode](seen, options)
    if request.mode is SpecMode.IMEX:
        return modes.imex_content(seen, request.selection.ids)
    if request.mode is SpecMode.MANAGEMENT:
        # without device files the driver is not loaded; that is to be told before libraries are missed
        modes.management_nodes(seen)
    driver = locate(seen.driver, folders=request.library_folders, loaded=loaded_version(seen.system))
    if request.mode is SpecMode.MANAGEMENT:
        return modes.management_content(seen, driver, options)
    return modes.gpu_content(seen, driver, options, _gpus(seen, driver, request, nvml), request.selection)


def _gpus(seen: DriverView, driver: DriverLibraries, request: SpecRequest, nvml: MakeNvml) -> tuple[Gpu, ...]:
    found = (
        inventory.static_gpus(seen)
        if request.mode is SpecMode.STATIC
        else _nvml_gpus(seen, driver, request.mode, nvml)
    )
    if not found:
        raise Unavailable(
            "no GPU found",
            details=[
                (
                    f"{inventory.INFORMATION} lists none, and there is no /dev/nvidiaN below "
                    f"{seen.roots.dev_seen}"
                )
            ],
            resolution="load the driver first, and name the folder above dev/ with --dev-root",
        )
    if not any(gpu.uuid for gpu in found):
        log.info("the GPUs are from /dev alone, where they have no UUIDs", count=len(found))
    return found


def _nvml_gpus(seen: DriverView, driver: DriverLibraries, mode: SpecMode, nvml: MakeNvml) -> tuple[Gpu, ...]:
    """The GPUs that NVML lists. In the mode `auto`, those of /proc and /dev where NVML does not answer."""
    library = next(
        (path for path in driver.libraries if path.rpartition("/")[2].startswith("libnvidia-ml.so.")), ""
    )
    try:
        return nvml(seen.roots.driver_seen.rstrip("/") + library if library else "").gpus()
    except Unavailable as error:
        if mode is SpecMode.NVML:
            raise
        log.info("NVML does not answer; the GPUs are from /proc and /dev", why=error.brief)
        return inventory.static_gpus(seen)


def write_spec(
    files: Files, path: str, spec: Spec, format_: SpecFormat, *, comments: tuple[str, ...] = ()
) -> bool:
    """Write a spec file whole, with mode 0644.

    False, with nothing written, where it has these bytes already.
    """
    data = specfiles.write(spec, format_, comments=comments).encode()
    if files.exists(path) and files.read_bytes(path) == data:
        return False
    files.make_dirs(dirname(path) or "/")
    files.write_atomic(path, data, mode=0o644)
    return True


def generate_management(
    host: Host,
    *,
    driver_root: str,
    driver_root_ctr: str,
    dev_root: str,
    dev_root_ctr: str,
    output_dir: str,
    kind: str,
    hook_path: str,
) -> str:
    """Write the management spec as the toolkit's installer does, and return its path.

    An empty dev root is the driver root, on the host and in this process. Raises Unavailable without device
    files or libraries of a driver, InputError for a wrong kind.
    """
    roots = DriverRoots(
        driver=driver_root,
        driver_here=driver_root_ctr,
        dev=dev_root or driver_root,
        dev_here=dev_root_ctr or driver_root_ctr or driver_root,
    )
    request = SpecRequest(
        mode=SpecMode.MANAGEMENT,
        kind=kind,
        roots=roots,
        options=EditOptions(hooks=HookProgram(path=hook_path)),
    )
    spec = make_spec(host, request, _no_nvml)
    path = f"{output_dir.rstrip('/')}/{file_name(kind)}"
    wrote = write_spec(
        host.files, path, spec, SpecFormat.YAML, comments=stale.comments(stale.observe(host, roots))
    )
    log.info("CDI spec is written" if wrote else "CDI spec is up to date", file=path, kind=kind)
    return path


def _no_nvml(_: str) -> Nvml:
    raise Unavailable("the management spec needs no NVML")
