"""Registries and their clients of others.

distribution, olareg and regctl come from the Go module proxy, crane from Debian.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import aptfetch, gobuild
from support.machines import registry
from support.process import start, stop, until

_DISTRIBUTION = "github.com/distribution/distribution/v3"
_OLAREG = "github.com/olareg/olareg"
_REGCLIENT = "github.com/regclient/regclient"


def _recipe(
    name: str, what: str, module: str, version: str, package: str, *, seldom: bool = False
) -> gobuild.Recipe:
    return gobuild.Recipe(
        name=name,
        what=what,
        requires={module: version},
        packages={name: package},
        flags=gobuild.QUICK,
        seldom=seldom,
    )


DISTRIBUTION = _recipe(
    "distribution",
    "distribution 3.1.2",
    _DISTRIBUTION,
    "v3.1.2",
    f"{_DISTRIBUTION}/cmd/registry",
    seldom=True,
)
OLAREG = _recipe("olareg", "olareg 0.1.2", _OLAREG, "v0.1.2", f"{_OLAREG}/cmd/olareg")
REGCTL = _recipe("regctl", "regctl 0.11.7", _REGCLIENT, "v0.11.7", f"{_REGCLIENT}/cmd/regctl")


def program(recipe: gobuild.Recipe) -> Path:
    """The program of a recipe; a minute of work where the cache has none. Raises as gobuild.programs."""
    return gobuild.programs(recipe) / recipe.name


def crane() -> Path:
    """The program of sid's package, unpacked. Raises Unavailable where it cannot be had."""
    archive = aptfetch.archive()
    return archive.unpacked([archive.newest("crane", suite="sid")]) / "usr/bin/crane"


@contextmanager
def serve_debians(folder: Path) -> Iterator[str]:
    with registry.serve(folder) as server:
        yield server.address


@contextmanager
def serve_distribution(folder: Path) -> Iterator[str]:
    with registry.serve(folder, program=program(DISTRIBUTION)) as server:
        yield server.address


@contextmanager
def serve_olareg(folder: Path) -> Iterator[str]:
    """It has OCI's referrers API."""
    folder.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words: list[str | Path] = [
        program(OLAREG),
        "serve",
        "--addr",
        "127.0.0.1",
        "--port",
        str(port),
        "--dir",
        folder,
        "--api-delete",
    ]
    log = folder.with_suffix(".log")
    child = start(words, log=log)
    try:
        until(lambda: _answers(port), "olareg answers", child=child, log=log)
        yield f"127.0.0.1:{port}"
    finally:
        stop(child)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
