"""Compilers of a newer Debian, for kernels that this machine's own cannot build for."""

from __future__ import annotations

import functools
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

from driverforge_core.errors import Unavailable
from support import aptfetch, cache

_SUITES = ("trixie", "sid")


@functools.cache
def folder(name: str) -> Path | None:
    """What PATH needs for a compiler ('gcc-14'); None if it is there, or no suite has it.

    The C library here is too old for it: each of its programs is started by the loader of its own suite.
    """
    package = f"{name}-x86-64-linux-gnu"
    if shutil.which(name) or not (suite := _suite(package)):
        return None
    packages = aptfetch.archive()
    needed = packages.with_dependencies([package], suite=suite)
    prefix = packages.unpacked(needed) / "usr"
    libraries = prefix / "lib/x86_64-linux-gnu"
    loader = [str(libraries / "ld-linux-x86-64.so.2"), "--library-path", str(libraries)]
    program = f"{prefix}/bin/x86_64-linux-gnu-"
    words = [*loader, f"{program}{name}", "-wrapper", ",".join(loader), f"-B{program}"]
    script = f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'

    def make(made: Path) -> None:
        (made / name).write_text(script)
        (made / name).chmod(0o755)

    return cache.cached("compiler", {"script": script}, make)


def _suite(package: str) -> str:
    for suite in _SUITES:
        with suppress(Unavailable):
            return aptfetch.archive().newest(package, suite=suite).suite
    return ""
