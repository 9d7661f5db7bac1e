"""NVIDIA's Go programs of the container toolkit, compiled from the Go module proxy.

This machine's `go` and a C compiler build them. They are unmodified and of a pinned version. Only the
programs are kept (40 MB). What is not written in Go, nvidia-container-cli and libnvidia-container, is in no
registry: where an installation needs them, tests have files of the same names, and say so.
"""

from __future__ import annotations

from pathlib import Path

from driverforge_core.errors import Unavailable
from driverforge_toolkit.toolkit.artifacts import PROGRAMS
from support import gobuild
from support.samples.toolkitsource import write_source

VERSION = "1.20.2"
MODULE = "github.com/NVIDIA/nvidia-container-toolkit"
NOT_GO = ("nvidia-container-cli",)
GO_PROGRAMS = tuple(name for name in PROGRAMS if name not in NOT_GO)
NO_CLI = "#!/bin/sh\necho 'libnvidia-container cannot be had here: this stands in its place' >&2\nexit 1\n"
# binding at first use, as upstream has it: NVML's symbols are there only once the program has opened the
# library itself
_LINK = f"-s -w -extldflags=-Wl,-z,lazy -X {MODULE}/internal/info.version={VERSION}"


RECIPE = gobuild.Recipe(
    name="gotools",
    what=f"NVIDIA's toolkit {VERSION}",
    requires={MODULE: f"v{VERSION}"},
    packages={program: f"{MODULE}/cmd/{program}" for program in GO_PROGRAMS},
    flags=("-trimpath", f"-ldflags={_LINK}"),
    cgo=True,
    seldom=True,
)


def programs() -> Path:
    """A folder with GO_PROGRAMS, from the cache; two minutes of two processors where it has none.

    Raises Unavailable as gobuild.programs.
    """
    return gobuild.programs(RECIPE)


def artifacts_or_doubles(folder: Path) -> Path:
    """`artifacts`, or scripts of the programs' names where the programs cannot be had.

    It is for tests that look at files and start none of them.
    """
    try:
        return artifacts(folder)
    except Unavailable:
        return write_source(folder)


def artifacts(folder: Path) -> Path:
    """A source folder for `driverctl toolkit` with the real Go programs and stand-ins for the rest.

    Raises as `programs`.
    """
    built = programs()
    write_source(folder, programs=dict.fromkeys(NOT_GO, NO_CLI))
    for name in GO_PROGRAMS:
        (folder / "usr/bin" / name).unlink()
        (folder / "usr/bin" / name).write_bytes((built / name).read_bytes())
        (folder / "usr/bin" / name).chmod(0o755)
    return folder
