"""A tar file of known contents, written in any order, in files of a chosen size."""

from __future__ import annotations

import errno
import hashlib
import os
import tarfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from driverforge_core.errors import InputError, StorageFailed

_BLOCK = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Where a file's bytes lie in the tar file."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TarPlan:
    """A tar file that is not written yet. `size` is in bytes.

    `frame` is all but the files' bytes, by offset: headers, what fills blocks, and the end.
    """

    spans: Mapping[str, Span]
    frame: Mapping[int, bytes]
    size: int


def plan_tar(files: Iterable[tuple[str, int]]) -> TarPlan:
    """A tar file of these names and sizes, in this order; the same ones give the same bytes."""
    spans, frame, at = dict[str, Span](), dict[int, bytes](), 0
    for name, size in files:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = size, 0o644
        frame[at] = bytes(-at % _BLOCK) + entry.tobuf(tarfile.GNU_FORMAT)
        spans[name] = Span(offset=at + len(frame[at]), size=size)
        at = spans[name].offset + size
    frame[at] = bytes(-at % _BLOCK + 2 * _BLOCK)
    return TarPlan(spans=spans, frame=frame, size=at + len(frame[at]))


def volume_sizes(size: int, each: int) -> list[int]:
    """The sizes of volumes of `each` bytes at most, `each` 0 for one of any size."""
    if not each or size <= each:
        return [size]
    return [each] * (size // each) + ([size % each] if size % each else [])


@dataclass(slots=True)
class Volumes:
    """Files that stand for one long one: `sizes` in bytes, by path, in order. Close it after use."""

    sizes: Mapping[Path, int]
    _open: dict[Path, int] = field(default_factory=dict, init=False)
    _opening: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def size(self) -> int:
        return sum(self.sizes.values())

    def make(self) -> None:
        """Make the files in their full length: a full disk is found before the first byte. StorageFailed."""
        for path, size in self.sizes.items():
            with storage(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                self._open[path] = descriptor
                os.ftruncate(descriptor, size)
                # not every file system can set room aside: there a full disk is found later
                with _where_supported():
                    os.posix_fallocate(descriptor, 0, size)

    def write(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        for path, at, size in self._pieces(offset, len(data)):
            written = 0
            with storage(path):
                while written < size:
                    written += os.pwrite(self._open[path], view[written:size], at + written)
            view = view[size:]

    def read(self, offset: int, size: int) -> bytes:
        """InputError where a volume is missing or too short."""
        found = bytearray()
        for path, at, length in self._pieces(offset, size):
            with storage(path):
                piece = os.pread(self._reading(path), length, at)
            if len(piece) < length:
                raise InputError(
                    f"{path} is shorter than the list of its archive says",
                    resolution="copy this volume again",
                )
            found += piece
        return bytes(found)

    def flush(self, span: Span) -> None:
        """Bring these bytes to the disk."""
        for path, _, _ in self._pieces(span.offset, span.size):
            with storage(path):
                os.fdatasync(self._open[path])

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _reading(self, path: Path) -> int:
        with self._opening:
            if path not in self._open:
                try:
                    # of a pipe nobody would write the other end
                    self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                except FileNotFoundError:
                    raise InputError(
                        f"the archive's volume {path} is not there",
                        resolution="put all volumes into the folder of the list",
                    ) from None
            return self._open[path]

    def _pieces(self, offset: int, size: int) -> Iterator[tuple[Path, int, int]]:
        """The files that hold these bytes: path, where in it, how many."""
        for path, length in self.sizes.items():
            if offset < length and size:
                count = min(size, length - offset)
                yield path, offset, count
                offset, size = 0, size - count
            else:
                offset -= length if offset >= length else 0
            if not size:
                return


def file_sum(path: Path) -> str:
    """The sha256 of a file, in hex. StorageFailed."""
    with storage(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _where_supported() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turns what a file system refuses into StorageFailed."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(
            f"{path}: {error.strerror}",
            resolution="make room, or choose another folder, and run the same command again: it goes on",
        ) from error
