"""Headers out of packages of a mirror: one file of a .deb, read as it streams by, never unpacked to disk.

A .deb is an ar archive with a compressed tar inside, deb(5).
"""

from __future__ import annotations

import gzip
import json
import lzma
import tarfile
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO, cast

from driverforge_build.fetch.cache import Cache
from driverforge_core.errors import InputError

UNPACKED_LIMIT = 512 << 20
"""Bytes. A header tree of Debian's has 75 MB."""
HEADER_LIMIT = 4 << 20
"""Bytes. The headers that probes read have less than 0.2 MB."""


class HeaderTexts:
    """Headers out of packages, kept by the package's digest.

    A package is downloaded for headers that nobody asked for before.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def kept(self, sha256: str, headers: Collection[str]) -> dict[str, str | None] | None:
        """The headers of a package if all were read before. One that the package does not have is None."""
        texts = self._load(sha256)
        return (
            {header: texts[header] for header in headers}
            if all(header in texts for header in headers)
            else None
        )

    def read(self, sha256: str, deb: Path, headers: Collection[str]) -> dict[str, str | None]:
        """The headers out of a package's file, and keep them."""
        found = read_members(deb, [f"*/{header}" for header in headers])
        texts: dict[str, str | None] = {header: found.get(f"*/{header}") for header in headers}
        with self._cache.new_file(self._path(sha256)) as file:
            file.write(json.dumps({**self._load(sha256), **texts}).encode())
        return texts

    def _load(self, sha256: str) -> dict[str, str | None]:
        try:
            texts = json.loads(self._path(sha256).read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return texts if isinstance(texts, dict) else {}

    def _path(self, sha256: str) -> Path:
        return self._cache.folder / "headers" / f"{sha256}.json"


class _Limited:
    """A stream that gives so many bytes and then fails.

    What a small package unpacks to is its maker's choice, and tarfile takes a long name's length on trust.
    """

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream = stream
        self._limit = self._left = limit

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise tarfile.ReadError(f"it unpacks to more than {self._limit} bytes")
        return data


def limited(stream: IO[bytes], limit: int) -> IO[bytes]:
    return cast(IO[bytes], _Limited(stream, limit))


def read_members(deb: Path, patterns: Sequence[str], *, limit: int = UNPACKED_LIMIT) -> dict[str, str]:
    """Texts of files in a .deb, by the pattern that named each.

    '*/include/linux/pci.h' is the file of that name nearest to the top. Reads on until each pattern has its
    file, else to the end. Raises InputError for a file that is no .deb, and one that unpacks to more than
    `limit` bytes, or has a header of more than HEADER_LIMIT.
    """
    wanted = {pattern: pattern.removeprefix("*") for pattern in patterns}
    found: dict[str, str] = {}
    try:
        with (
            deb.open("rb") as file,
            tarfile.open(fileobj=limited(data_member(file, deb), limit), mode="r|") as archive,
        ):
            for member in archive:
                name = next(
                    (
                        pattern
                        for pattern, end in wanted.items()
                        if member.name.endswith(end) and member.isfile()
                    ),
                    None,
                )
                if name is None or not _is_tree(member.name.removesuffix(wanted[name])):
                    continue
                if member.size > HEADER_LIMIT:
                    raise tarfile.ReadError(f"{member.name} has {member.size} bytes")
                content = archive.extractfile(member)
                found[name] = content.read().decode("utf-8", errors="replace") if content else ""
                del wanted[name]
                if not wanted:
                    break
    except (tarfile.TarError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError, ValueError) as error:
        raise InputError(
            f"{deb} cannot be read as a package: {error}",
            resolution="remove the file and run the command again",
        ) from error
    return found


def _is_tree(folder: str) -> bool:
    """Whether a folder is the top of a header tree: ./usr/src/linux-headers-6.1.0-50-common.

    Debian's hold no tree inside a tree.
    """
    return folder.removeprefix("./").count("/") <= 2


def data_member(file: IO[bytes], deb: Path) -> IO[bytes]:
    """The data.tar of a .deb, unpacked as it is read."""
    if file.read(8) != b"!<arch>\n":
        raise InputError(
            f"{deb} is not a Debian package", resolution="remove the file and run the command again"
        )
    while len(head := file.read(60)) == 60:
        name, size = head[:16].decode("ascii", errors="replace").strip().rstrip("/"), int(head[48:58])
        if name == "data.tar.xz":
            return cast(IO[bytes], lzma.LZMAFile(file))
        if name == "data.tar.gz":
            return cast(IO[bytes], gzip.GzipFile(fileobj=file))
        if name == "data.tar":
            return file
        file.seek(size + size % 2, 1)
    raise InputError(
        f"{deb} has no data.tar in a compression that this program reads (xz, gz, none)",
        resolution="its distribution needs a newer driverforge; leave it out with --skip",
    )
