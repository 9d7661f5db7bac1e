"""Shared libraries by hand: ELF files with a dynamic section and nothing that could run."""

from __future__ import annotations

import struct

_BASE = 0x1000  # addresses differ from offsets, as in real libraries


def tiny_so(soname: str = "") -> bytes:
    """An ELF64 shared object for x86-64 with this DT_SONAME, or without one."""
    dynamic, strings = 64 + 2 * 56, 64 + 2 * 56 + 3 * 16
    names = b"\0" + soname.encode() + b"\0"
    size = strings + len(names)
    header = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, _BASE)
    here = struct.pack("<IIQQQQQQ", 2, 6, dynamic, _BASE + dynamic, _BASE + dynamic, 48, 48, 8)
    tags = [(5, _BASE + strings), (14, 1) if soname else (0, 0), (0, 0)]
    return header + load + here + b"".join(struct.pack("<qQ", *tag) for tag in tags) + names
