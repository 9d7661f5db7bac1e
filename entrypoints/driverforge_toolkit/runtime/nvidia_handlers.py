"""Which runtimes are NVIDIA's own.

These are never a template for a handler, and never the low-level runtime that NVIDIA's wrapper calls: it
would call itself.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from driverforge_toolkit.runtime.model import Handler

PROGRAM = "nvidia-container-runtime"  # and with a suffix: .cdi, .legacy, .experimental, .real
LOW_LEVEL = ("runc", "crun")


def nvidia_handlers(folder: str, name: str = "nvidia") -> tuple[Handler, ...]:
    """The handlers of NVIDIA's toolkit, with its programs in `folder`.

    `name` is the first handler's, unless it is the name of one of the others.
    """
    first = name if name not in ("nvidia-cdi", "nvidia-legacy") else "nvidia"
    programs = {first: PROGRAM, "nvidia-cdi": f"{PROGRAM}.cdi", "nvidia-legacy": f"{PROGRAM}.legacy"}
    return tuple(
        Handler(name=key, binary=f"{folder.rstrip('/')}/{program}") for key, program in programs.items()
    )


def is_nvidia(name: str, binary: str, own: Iterable[str] = ()) -> bool:
    """Whether a runtime is NVIDIA's: by its name, by its program's name, or because its program is in `own`.

    `own` are resolved paths.
    """
    program = posixpath.basename(binary)
    return (
        name.startswith("nvidia")
        or program == PROGRAM
        or program.startswith(f"{PROGRAM}.")
        or binary in tuple(own)
    )


def low_level(default: str, binaries: Mapping[str, str], own: Iterable[str] = ()) -> tuple[str, ...]:
    """The programs that run containers on this node, the default runtime's first.

    `binaries` maps runtimes to programs. A runtime that names no program ('') is run by that of its own name,
    which is looked up on PATH.
    """
    own = tuple(own)
    found = []
    for name in dict.fromkeys((default, *LOW_LEVEL)):
        binary = binaries.get(name, "")
        if name in binaries and not is_nvidia(name, binary, own):
            found.append(binary or name)
    return tuple(dict.fromkeys(found))


def template(
    default: str, tables: Mapping[str, object], binaries: Mapping[str, str], own: Iterable[str]
) -> Mapping[str, object] | None:
    """The table of the runtime that a handler takes after, None where there is none.

    This is the default runtime, runc or crun: the first of them that is there and not NVIDIA's.
    """
    own = tuple(own)
    for name in (default, *LOW_LEVEL):
        table = tables.get(name)
        if isinstance(table, Mapping) and not is_nvidia(name, binaries.get(name, ""), own):
            return table
    return None


def existing(
    name: str, default: str, tables: Mapping[str, object], binaries: Mapping[str, str], own: Iterable[str]
) -> Mapping[str, object] | None:
    """The table of the NVIDIA handler that the handler `name` takes after first, None where there is none.

    This is the one of its own name, `nvidia`, or the default runtime: the first that is there and NVIDIA's.
    Where no runtime is there but NVIDIA's, any of them.
    """
    own = tuple(own)
    theirs = [key for key in tables if is_nvidia(key, binaries.get(key, ""), own)]
    alone = theirs if len(theirs) == len(tables) else []
    for key in (name, "nvidia", default, *alone):
        table = tables.get(key)
        if key in theirs and isinstance(table, Mapping):
            return table
    return None


def replacement(tables: Mapping[str, object], binaries: Mapping[str, str]) -> str:
    """The runtime that is the default where none of NVIDIA's is to be: runc, or crun where only that is."""
    there = [name for name in LOW_LEVEL if name in tables and not is_nvidia(name, binaries.get(name, ""))]
    return there[0] if there else LOW_LEVEL[0]
