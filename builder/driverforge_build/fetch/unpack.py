"""The files of a package below a folder: kernels and their modules, to be booted and never installed."""

from __future__ import annotations

import gzip
import lzma
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from driverforge_build.fetch.headers import data_member, limited
from driverforge_core.errors import InputError, StorageFailed

UNPACKED_LIMIT = 8 << 30
"""Bytes. Debian's kernel for all hardware unpacks to 0.4 GB."""


def unpack_deb(deb: Path, target: Path, *, limit: int = UNPACKED_LIMIT) -> None:
    """Write the regular files of a .deb below a folder. Links are left out, and names that lead out of it.

    Raises InputError for a file that is no .deb, and one that unpacks to more than `limit` bytes;
    StorageFailed.
    """
    try:
        with (
            deb.open("rb") as file,
            tarfile.open(fileobj=limited(data_member(file, deb), limit), mode="r|") as archive,
        ):
            for member in archive:
                path = PurePosixPath(member.name)
                if not member.isfile() or path.is_absolute() or ".." in path.parts:
                    continue
                place = target / path
                place.parent.mkdir(parents=True, exist_ok=True)
                content = archive.extractfile(member)
                assert content is not None
                with place.open("wb") as out:
                    shutil.copyfileobj(content, out)
    except (tarfile.TarError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError, ValueError) as error:
        raise InputError(
            f"{deb} cannot be read as a package: {error}",
            resolution="remove the file and run the command again",
        ) from error
    except OSError as error:
        raise StorageFailed(
            f"cannot unpack {deb.name} to {target}: {error.strerror}",
            resolution="free some space, or set TMPDIR to a folder that has some",
        ) from error
