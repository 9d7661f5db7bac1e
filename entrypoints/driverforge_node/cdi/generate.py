"""From a request to a spec file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from posixpath import dirname

from driverforge_core.errors import Unavailable, Unsupported
from driverforge_node import log
from driverforge_node.cdi import document, gpus, modes, stale, transform
from driverforge_node.cdi.driverfiles import Wish
from driverforge_node.cdi.gpus import Gpu, Nvml
from driverforge_node.cdi.hooks import Hooks
from driverforge_node.cdi.libraries import Driver, locate
from driverforge_node.cdi.roots import Roots, View, read, view
from driverforge_node.cdi.rules import file_name, split_kind
from driverforge_node.cdi.spec import Edits, Spec, joined
from driverforge_node.host.ports import Files, Host

MODES = ("auto", "nvml", "static", "management", "imex", *modes.SIMPLE)
ELSEWHERE = {"csv": "Tegra systems", "wsl": "Windows"}  # upstream's modes that have no node of ours
LOADED_VERSION = "/sys/module/nvidia/version"

_KINDS = {
    "management": "management.nvidia.com/gpu",
    "imex": "nvidia.com/imex-channel",
    **{name: f"nvidia.com/{name}" for name in modes.SIMPLE},
}
# images that set NVIDIA_VISIBLE_DEVICES would get devices from the runtime once more
_ALWAYS = Edits(env=("NVIDIA_VISIBLE_DEVICES=void",))

MakeNvml = Callable[[str], Nvml]  # from libnvidia-ml's path, '' where it was not found


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for. An empty `kind` is the mode's own."""

    mode: str = "auto"
    kind: str = ""
    roots: Roots = field(default_factory=Roots)
    wish: Wish = field(default_factory=lambda: Wish(hooks=Hooks()))
    selection: modes.Selection = field(default_factory=modes.Selection)
    merged: bool = True  # a device 'all'
    library_folders: tuple[str, ...] = ()


def default_kind(mode: str) -> str:
    return _KINDS.get(mode, "nvidia.com/gpu")


def make_spec(host: Host, request: Request, nvml: MakeNvml) -> Spec:
    """The spec, with host paths as the host has them. Raises Unavailable where what it describes is not there, InputError, Unsupported."""
    if request.mode in ELSEWHERE:
        raise Unsupported(
            f"the mode {request.mode} is for {ELSEWHERE[request.mode]}",
            resolution="use NVIDIA's nvidia-ctk there, or another mode",
        )
    kind = request.kind or default_kind(request.mode)
    split_kind(kind)
    seen = view(host, request.roots)
    content = _content(seen, request, nvml)
    if not content.devices:
        raise Unavailable(
            "no device that a container could get",
            details=["every GPU has MIG on and no MIG device, or lacks its file /dev/nvidiaN"],
            resolution="make the device files (driverctl devices nodes) or MIG devices (nvidia-smi mig -cgi … -C), then run this again",
        )
    devices = transform.with_merged(content.devices) if request.merged else content.devices
    spec = Spec(version="", kind=kind, devices=devices, edits=joined([content.edits, _ALWAYS]))
    return _moved(transform.in_order(transform.simplified(spec)), request.roots)


def _moved(spec: Spec, roots: Roots) -> Spec:
    """Our paths to the host's."""
    driver, dev = (roots.driver_seen, roots.driver), (roots.dev_seen, roots.dev_host)
    same = driver[0] == driver[1] and dev[0] == dev[1]
    return spec if same else transform.driver_moved(spec, driver=driver, dev=dev)


def _content(seen: View, request: Request, nvml: MakeNvml) -> modes.Content:
    wish = request.wish
    if request.mode in modes.SIMPLE:
        return modes.SIMPLE[request.mode](seen, wish)
    if request.mode == "imex":
        return modes.imex_content(seen, request.selection.ids)
    if request.mode == "management":
        modes.management_nodes(
            seen
        )  # without them the driver is not loaded, which is the first thing to be told
    driver = locate(
        seen.driver, folders=request.library_folders, loaded=read(seen.system, LOADED_VERSION).strip()
    )
    if request.mode == "management":
        return modes.management_content(seen, driver, wish)
    return modes.gpu_content(seen, driver, wish, _gpus(seen, driver, request, nvml), request.selection)


def _gpus(seen: View, driver: Driver, request: Request, nvml: MakeNvml) -> tuple[Gpu, ...]:
    found = (
        gpus.static_gpus(seen) if request.mode == "static" else _nvml_gpus(seen, driver, request.mode, nvml)
    )
    if not found:
        raise Unavailable(
            "no GPU found",
            details=[
                f"{gpus.INFORMATION} lists none, and there is no /dev/nvidiaN below {seen.roots.dev_seen}"
            ],
            resolution="load the driver first, and name the folder above dev/ with --dev-root",
        )
    if not any(gpu.uuid for gpu in found):
        log.info("GPUs from /dev only; they have no UUID there", count=len(found))
    return found


def _nvml_gpus(seen: View, driver: Driver, mode: str, nvml: MakeNvml) -> tuple[Gpu, ...]:
    """NVML's, or in the mode auto the static ones where NVML does not answer."""
    library = next(
        (path for path in driver.libraries if path.rpartition("/")[2].startswith("libnvidia-ml.so.")), ""
    )
    try:
        return nvml(seen.roots.driver_seen.rstrip("/") + library if library else "").gpus()
    except Unavailable as error:
        if mode == "nvml":
            raise
        log.info("NVML gives no answer; GPUs from /proc and /dev", why=error.brief)
        return gpus.static_gpus(seen)


def write_spec(files: Files, path: str, spec: Spec, format_: str, *, comments: tuple[str, ...] = ()) -> bool:
    """Write it as runtimes want to find it (whole, 0644); False, with nothing written, where these bytes are there already."""
    data = document.write(spec, format_, comments=comments).encode()
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
    """Write the management spec as the toolkit's installer does; its path. An empty dev root is the driver root, here and there.

    Raises Unavailable ('no NVIDIA device nodes found', 'no NVIDIA driver libraries found'), InputError for a wrong kind.
    """
    roots = Roots(
        driver=driver_root,
        driver_here=driver_root_ctr,
        dev=dev_root or driver_root,
        dev_here=dev_root_ctr or driver_root_ctr or driver_root,
    )
    request = Request(mode="management", kind=kind, roots=roots, wish=Wish(hooks=Hooks(program=hook_path)))
    spec = make_spec(host, request, _no_nvml)
    path = f"{output_dir.rstrip('/')}/{file_name(kind)}"
    wrote = write_spec(host.files, path, spec, "yaml", comments=stale.comments(stale.observe(host, roots)))
    log.info("CDI spec is written" if wrote else "CDI spec is up to date", file=path, kind=kind)
    return path


def _no_nvml(_: str) -> Nvml:
    raise Unavailable("the management spec needs no NVML")
