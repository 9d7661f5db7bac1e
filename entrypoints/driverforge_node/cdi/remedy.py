"""Who writes a spec of the node anew: our generator, for the kinds that it knows, else the tool that wrote it."""

from __future__ import annotations

from shlex import quote

from driverforge_node.cdi.generate import MODES, default_kind
from driverforge_node.cdi.rules import file_name, split_kind

AGAIN = "driverctl cdi generate"
OTHERS = "let the tool that wrote it write it again"
_MODES = {default_kind(mode): mode for mode in reversed(MODES)}  # several modes write nvidia.com/gpu; the first is auto


def is_ours(kind: str) -> bool:
    """Whether `driverctl cdi generate` writes specs of this kind."""
    return kind in _MODES


def rewrite(kind: str, path: str) -> str:
    """The command that writes the spec at `path` anew; for a kind that is not ours, a sentence."""
    return f"{AGAIN}{_option(kind)} --output {quote(path)}" if is_ours(kind) else f"{OTHERS}: {quote(path)}"


def rewrite_unreadable(path: str) -> str:
    """The same for a file that says no kind: by its name, which other CDI tools keep to, too."""
    stem = path.rpartition("/")[2].rpartition(".")[0]
    return rewrite(next((kind for kind in _MODES if file_name(kind, "") == stem), ""), path)


def write(kind: str, folder: str) -> str:
    """The command that writes a spec of GPUs that is not there, whatever its kind. Raises InputError for what is no kind."""
    vendor, name = split_kind(kind)
    mode = " --mode management" if vendor.startswith("management.") else ""
    option = _option(kind) if is_ours(kind) else f"{mode} --vendor {vendor} --class {name}"
    return f"{AGAIN}{option} --output {folder}/{file_name(kind)}"


def _option(kind: str) -> str:
    return "" if _MODES[kind] == "auto" else f" --mode {_MODES[kind]}"
