"""How to write a spec of the node again.

By our generator for the kinds that it knows, else by the tool that wrote it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from shlex import quote

from driverforge_toolkit.cdi.conformance import file_name, split_kind
from driverforge_toolkit.cdi.generate import MODES, default_kind
from driverforge_toolkit.cdi.hooks import DEFAULT_PROGRAM, is_library
from driverforge_toolkit.cdi.modes import SpecMode
from driverforge_toolkit.cdi.spec import DeviceNode, Spec

AGAIN = "driverctl cdi generate"
OTHERS = "let the tool that wrote it write it again"
# several modes write nvidia.com/gpu; the first of them, auto, is the one to name
_MODES = {default_kind(mode): mode for mode in reversed(MODES)}


def is_ours(kind: str) -> bool:
    """Whether `driverctl cdi generate` writes specs of this kind."""
    return kind in _MODES


def rewrite_command(kind: str, path: str, *, options: str = "") -> str:
    """The command that writes the spec at `path` again; a sentence instead where the kind is not ours."""
    if not is_ours(kind):
        return f"{OTHERS}: {quote(path)}"
    return f"{AGAIN}{_option(kind)}{options} --output {quote(path)}"


def generate_options(spec: Spec, *, gone: Collection[str] = ()) -> str:
    """The options of `driverctl cdi generate` that a spec was made with, as far as the spec shows them.

    `gone` are host paths of the spec that are not there: none of them is named again.
    """
    driver, dev = _driver_root(spec), next((dev_root(node) for node in _nodes(spec)), "")
    words = ["--driver-root", driver] if driver not in ("", "/") else []
    words += ["--dev-root", dev] if dev and dev != (driver or "/") else []
    programs = [
        hook.path
        for edits in spec.all_edits
        for hook in edits.hooks
        if hook.path.endswith("/nvidia-cdi-hook")
    ]
    words += (
        ["--nvidia-cdi-hook-path", programs[0]]
        if programs and programs[0] not in (DEFAULT_PROGRAM, *gone)
        else []
    )
    return "".join(f" {quote(word)}" for word in words)


def _driver_root(spec: Spec) -> str:
    """The driver root on the host, by the libraries; '' where the spec has none."""
    mounts = (mount for edits in spec.all_edits for mount in edits.mounts)
    return next(
        (
            _above(mount.host_path, mount.container_path)
            for mount in mounts
            if is_library(mount.container_path)
        ),
        "",
    )


def dev_root(node: DeviceNode) -> str:
    """The folder of the host that has the /dev of this device file."""
    return _above(node.host_path or node.path, node.path)


def _above(path: str, below: str) -> str:
    return (path.removesuffix(below) or "/") if path.endswith(below) else ""


def _nodes(spec: Spec) -> Iterator[DeviceNode]:
    return (node for edits in spec.all_edits for node in edits.device_nodes)


def command_for_unreadable(path: str) -> str:
    """The same for a file that cannot be read, and so says no kind.

    The kind is guessed from the file's name: other CDI tools keep to these names, too, and NVIDIA's pages and
    ours call the one of GPUs nvidia.yaml.
    """
    stem = path.rpartition("/")[2].rpartition(".")[0]
    kinds = {"nvidia": default_kind(SpecMode.AUTO), **{file_name(kind, ""): kind for kind in _MODES}}
    return rewrite_command(kinds.get(stem, ""), path)


def write_command(kind: str, folder: str) -> str:
    """The command that writes a missing spec of GPUs, whatever its kind.

    Raises InputError for what is no kind.
    """
    vendor, name = split_kind(kind)
    mode = " --mode management" if vendor.startswith("management.") else ""
    option = _option(kind) if is_ours(kind) else f"{mode} --vendor {vendor} --class {name}"
    return f"{AGAIN}{option} --output {folder}/{file_name(kind)}"


def _option(kind: str) -> str:
    return "" if _MODES[kind] is SpecMode.AUTO else f" --mode {_MODES[kind].value}"
