"""The files in a package, one after the other as the package streams by.

A .deb is an ar archive with a compressed tar inside, deb(5). An .rpm has two tables of tags before a
compressed cpio archive (rpm's manual, "RPM V4 Package format").
"""

from __future__ import annotations

import binascii
import struct
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Self, cast

from driverforge_build import packed
from driverforge_core.errors import InputError, StorageFailed

DAMAGED: tuple[type[Exception], ...] = (*packed.DAMAGED, tarfile.TarError, ValueError, struct.error)
"""What reading a damaged package raises."""
NAME_LIMIT = 4096
"""Bytes of a path in an archive."""
_DEB, _RPM = b"!<arch>\n", b"\xed\xab\xee\xdb"
_LEAD, _TABLE = 96, b"\x8e\xad\xe8\x01"
_TRAILER = "TRAILER!!!"
_LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
# what dpkg reads, by deb(5): no sparse files, whose holes no limit on a stream counts, and nothing of pax
_ENTRIES = frozenset(
    (
        *(tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE),
        *(tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE),
        *_LONG,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A plain file; `read` gives its content, before the next one is asked for."""

    name: str
    size: int
    read: Callable[[], bytes]


def members(package: IO[bytes], *, limit: int) -> Iterator[Member]:
    """The plain files of a package.

    Raises InputError for what is none, one of DAMAGED for a broken one or past `limit` bytes of content.
    """
    magic = package.read(len(_DEB))
    if magic == _DEB:
        return _of_tar(_limited(_data_of_deb(package), limit))
    if magic.startswith(_RPM):
        package.seek(_LEAD)
        return _of_cpio(_limited(_payload_of_rpm(package), limit))
    raise InputError(
        "what the mirror sent is neither a .deb nor an .rpm", resolution="remove the file and run it again"
    )


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


def _limited(stream: IO[bytes], limit: int) -> IO[bytes]:
    return cast(IO[bytes], _Limited(stream, limit))


def _data_of_deb(file: IO[bytes]) -> IO[bytes]:
    """The data.tar of a .deb, unpacked as it is read."""
    while len(head := file.read(60)) == 60:
        name, size = head[:16].decode("ascii", errors="replace").strip().rstrip("/"), int(head[48:58])
        base, suffix = name[: len("data.tar")], name[len("data.tar") :]
        if base == "data.tar" and suffix in ("", *packed.SUFFIXES):
            return packed.unpacked(file, suffix)
        if size < 0:
            raise ValueError(f"a part of it has {size} bytes")
        file.seek(size + size % 2, 1)
    raise InputError(
        "a package has no data.tar in a compression that this program reads (zst, xz, gz, bz2, none)",
        resolution="its distribution needs a newer driverforge; leave it out with --skip",
    )


def _of_tar(stream: IO[bytes]) -> Iterator[Member]:
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Entry) as archive:
        for member in archive:
            if member.isfile() and (content := archive.extractfile(member)) is not None:
                yield Member(name=member.name, size=member.size, read=content.read)


class _Entry(tarfile.TarInfo):
    """An entry of a kind that dpkg reads.

    tarfile reads the others' additions, and a name of any length, whole into the memory.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        entry = super().frombuf(buf, encoding, errors)
        if entry.type not in _ENTRIES:
            raise tarfile.ReadError(f"{entry.name} is an entry of the type {entry.type!r}")
        if entry.type in _LONG and entry.size > NAME_LIMIT:
            raise tarfile.ReadError(f"a path has {entry.size} bytes")
        return entry


def _payload_of_rpm(file: IO[bytes]) -> IO[bytes]:
    """The cpio archive of an .rpm whose lead was read, unpacked as it is read."""
    signature = _skip_table(file)
    file.seek(-signature % 8, 1)
    _skip_table(file)
    start = file.tell()
    suffix = packed.suffix_of(file.read(8))
    file.seek(start)
    return packed.unpacked(file, suffix)


def _skip_table(file: IO[bytes]) -> int:
    """Go past a table of tags: magic, two numbers, entries of 16 bytes, their values. Returns its size."""
    head = file.read(16)
    if not head.startswith(_TABLE):
        raise ValueError("it has no table of tags where an .rpm has one")
    entries, values = struct.unpack(">8xII", head)
    size: int = entries * 16 + values
    file.seek(size, 1)
    return len(head) + size


def _of_cpio(stream: IO[bytes]) -> Iterator[Member]:
    """Entries of a cpio archive "newc", each with its own head, name and content, in steps of four bytes.

    The head's numbers are eight digits each. int() would take "-0000001", and read on without a limit.
    """
    while True:
        head = _exactly(stream, 110)
        if not head.startswith((b"070701", b"070702")):
            raise ValueError("it has no cpio archive of the usual kind")
        numbers = struct.unpack(">13I", binascii.unhexlify(head[6:]))
        mode, size, length = numbers[1], numbers[6], numbers[11]
        if not 0 < length <= NAME_LIMIT:
            raise ValueError(f"a path has {length} bytes")
        name = _exactly(stream, length)[:-1].decode("utf-8", errors="replace")
        _skip(stream, -(110 + length) % 4)
        if name == _TRAILER:
            return
        content = _Content(stream, size)
        if mode & 0o170000 == 0o100000:
            yield Member(name=name, size=size, read=content.read)
        content.skip()


class _Content:
    """What is left of an entry's content, with what fills it up."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream, self._size, self._left = stream, size, size + -size % 4

    def read(self) -> bytes:
        self._left -= self._size
        return _exactly(self._stream, self._size)

    def skip(self) -> None:
        _skip(self._stream, self._left)
        self._left = 0


def _exactly(stream: IO[bytes], size: int) -> bytes:
    parts = []
    while size:
        part = stream.read(size)
        if not part:
            raise EOFError("it ends in the middle")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _skip(stream: IO[bytes], size: int) -> None:
    while size:
        size -= len(_exactly(stream, min(size, 1 << 16)))


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
