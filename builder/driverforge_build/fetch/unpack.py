"""The files of a package below a folder: kernels and their modules, to be booted and never installed."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from driverforge_build.fetch.packagefile import DAMAGED, Member, members
from driverforge_core.errors import InputError, StorageFailed

UNPACKED_LIMIT = 8 << 30
"""Bytes. Debian's kernel for all hardware unpacks to 0.4 GB."""
FILE_LIMIT = 256 << 20
"""Bytes of one file, which is held in memory. A kernel has less than 0.1 GB, a module less than that."""


def unpack_package(package: Path, target: Path, *, limit: int = UNPACKED_LIMIT) -> None:
    """Write the plain files of a .deb or .rpm below a folder, but for names that lead out of it.

    Raises InputError for a file that is no package, and one that unpacks to more than `limit` bytes or has a
    file of more than FILE_LIMIT; StorageFailed.
    """
    try:
        with package.open("rb") as file:
            for member in members(file, limit=limit):
                path = PurePosixPath(member.name)
                if not path.is_absolute() and ".." not in path.parts:
                    _write(member, target / path)
    except DAMAGED as error:
        raise InputError(
            f"{package} cannot be read as a package: {error}",
            resolution="remove the file and run the command again",
        ) from error


def _write(member: Member, place: Path) -> None:
    if member.size > FILE_LIMIT:
        raise EOFError(f"{member.name} has {member.size} bytes")
    content = member.read()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    except OSError as error:
        raise StorageFailed(
            f"cannot unpack a package to {place}: {error.strerror}",
            resolution="free some space, or set TMPDIR to a folder that has some",
        ) from error
