"""NVIDIA's Go programs of the container toolkit, compiled from the Go module proxy with this machine's `go` and a C compiler.

They are unmodified and of a pinned version; only the programs are kept (40 MB). What is not written in Go, nvidia-container-cli and
libnvidia-container, is in no registry: where an installation needs them, tests have files of the same names, and say so.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from driverforge_core.errors import Unavailable
from driverforge_node.toolkit.source import PROGRAMS
from support import cache
from support.process import missing, run
from support.toolkitsource import write_source

VERSION = "1.20.1"
MODULE = "github.com/NVIDIA/nvidia-container-toolkit"
NOT_GO = ("nvidia-container-cli",)
GO_PROGRAMS = tuple(name for name in PROGRAMS if name not in NOT_GO)
NO_CLI = "#!/bin/sh\necho 'libnvidia-container cannot be had here: this stands in its place' >&2\nexit 1\n"
# binding at first use, as upstream has it: NVML's symbols are there only once the program has opened the library itself
_LINK = f"-s -w -extldflags=-Wl,-z,lazy -X {MODULE}/internal/info.version={VERSION}"


def programs() -> Path:
    """A folder with GO_PROGRAMS, from the cache; two minutes of two processors where it has none.

    Raises Unavailable without Go or a compiler.
    """
    if gone := missing("go", "cc"):
        raise Unavailable(
            f"no {' and no '.join(gone)} here to compile NVIDIA's toolkit {VERSION}",
            resolution="install Go 1.25 or newer and a C compiler",
        )
    toolchain = run("go", "env", "GOVERSION", "GOOS", "GOARCH").stdout.split()
    return cache.cached(
        "gotools", {"version": VERSION, "go": toolchain, "programs": GO_PROGRAMS, "link": _LINK}, _compile
    )


def _compile(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        work = Path(name)
        env = {
            "CGO_ENABLED": "1",
            "GOBIN": str(folder),
            "GOCACHE": str(work / "build"),
            "GOMODCACHE": str(work / "modules"),
            # without modcacherw the module cache is read-only and only root could delete it; a caller's -mod=… would be refused
            "GOFLAGS": "-modcacherw -buildvcs=false",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
        }
        packages = [f"{MODULE}/cmd/{program}@v{VERSION}" for program in GO_PROGRAMS]
        run(
            "nice",
            "-n",
            "19",
            "go",
            "install",
            "-trimpath",
            f"-ldflags={_LINK}",
            *packages,
            cwd=work,
            env=env,
        )


def artifacts(folder: Path) -> Path:
    """A source folder for `driverctl toolkit` with the real Go programs and stand-ins for the rest. Raises as `programs`."""
    built = programs()
    write_source(folder, programs=dict.fromkeys(NOT_GO, NO_CLI))
    for name in GO_PROGRAMS:
        (folder / "usr/bin" / name).unlink()
        (folder / "usr/bin" / name).write_bytes((built / name).read_bytes())
        (folder / "usr/bin" / name).chmod(0o755)
    return folder
