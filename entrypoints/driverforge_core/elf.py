"""The SONAME of a shared library (ELF, gabi chapter 5), from the few parts of the file that hold it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

_LOAD, _DYNAMIC = 1, 2
_NULL, _STRTAB, _SONAME = 0, 5, 14
_MAX_NAME = 256

Read = Callable[[int, int], bytes]  # (offset, size)


def soname(read: Read) -> str | None:
    """DT_SONAME; '' where the library has none, None for what is no library that we can read.

    Read are 64-bit little-endian ELF files with a dynamic section.
    """
    try:
        return _soname(read)
    except struct.error:
        return None


def _soname(read: Read) -> str | None:
    head = read(0, 64)
    if head[:6] != b"\x7fELF\x02\x01":
        return None
    (offset,) = struct.unpack_from("<Q", head, 0x20)
    size, count = struct.unpack_from("<HH", head, 0x36)
    loads, dynamic = [], None
    for index in range(count):
        kind, _, at, address, _, in_file = struct.unpack_from("<IIQQQQ", read(offset + index * size, size))
        if kind == _LOAD:
            loads.append((address, at, in_file))
        elif kind == _DYNAMIC:
            dynamic = read(at, in_file)
    if dynamic is None:
        return None
    entries = dict(_entries(dynamic))
    if _SONAME not in entries:
        return ""
    names = _file_offset(entries.get(_STRTAB, 0), loads)
    return (
        None
        if names is None
        else read(names + entries[_SONAME], _MAX_NAME).partition(b"\0")[0].decode("ascii", "replace")
    )


def _entries(dynamic: bytes) -> Iterator[tuple[int, int]]:
    for tag, value in struct.iter_unpack("<qQ", dynamic[: len(dynamic) // 16 * 16]):
        if tag == _NULL:
            return
        yield tag, value


def _file_offset(address: int, loads: list[tuple[int, int, int]]) -> int | None:
    return next((at + address - start for start, at, size in loads if start <= address < start + size), None)
