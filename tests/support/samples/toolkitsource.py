"""A folder as NVIDIA's packages unpack, with nothing of NVIDIA's in it.

Its programs print their name, arguments and environment.
"""

from __future__ import annotations

from pathlib import Path

from driverforge_toolkit.toolkit.artifacts import PROGRAMS

VERSION = "99.88.77"
TELL = '#!/bin/sh\necho "program=${0##*/}"\nfor word do echo "word=$word"; done\npwd\nenv\n'


def write_source(
    folder: Path, *, version: str = VERSION, programs: dict[str, str] | None = None, rpm: bool = False
) -> Path:
    """Make `folder` look like /artifacts/deb (or rpm).

    `programs` maps names to contents. A program that is not in it has its name and a newline.
    """
    libraries = folder / ("usr/lib64" if rpm else "usr/lib/x86_64-linux-gnu")
    libraries.mkdir(parents=True, exist_ok=True)
    for name in ("libnvidia-container", "libnvidia-container-go"):
        (libraries / f"{name}.so.{version}").write_text("")
        link = libraries / f"{name}.so.1"
        link.unlink(missing_ok=True)
        link.symlink_to(f"{name}.so.{version}")
    (folder / "usr/bin").mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        program = folder / "usr/bin" / name
        program.write_text((programs or {}).get(name, f"{name}\n"))
        program.chmod(0o755)
    return folder
