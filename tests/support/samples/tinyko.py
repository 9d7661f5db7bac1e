"""Kernel modules by hand: ELF files with a .modinfo section, as modinfo(8) reads them.

Nothing in them could run.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

SIGNATURE_MAGIC = b"~Module signature appended~\n"


def tiny_ko(entries: Sequence[str], *, section: str = ".modinfo") -> bytes:
    """A relocatable ELF64 file for x86-64.

    Its `section` holds the NUL-terminated `entries` ('depends=nvidia').
    """
    content = b"".join(entry.encode() + b"\0" for entry in entries)
    names = b"\0" + section.encode() + b"\0.shstrtab\0"
    table = 64 + len(content) + len(names)
    table += -table % 8
    header = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    )
    sections = (
        bytes(64)
        + struct.pack("<IIQQQQIIQQ", 1, 1, 2, 0, 64, len(content), 0, 0, 1, 0)  # PROGBITS, ALLOC
        # STRTAB
        + struct.pack("<IIQQQQIIQQ", len(section) + 2, 3, 0, 0, 64 + len(content), len(names), 0, 0, 1, 0)
    )
    body = header + content + names
    return body + bytes(table - len(body)) + sections


def append_signature(
    ko: bytes, *, signer: bytes = b"", key_id: bytes = b"", signature: bytes, id_type: int = 2
) -> bytes:
    """The trailer that scripts/sign-file writes.

    `id_type` 2 is PKCS#7; 1 is the old form, which names its signer in the trailer.
    """
    trailer = struct.pack(">BBBBB3xI", 0, 4, id_type, len(signer), len(key_id), len(signature))
    return ko + signer + key_id + signature + trailer + SIGNATURE_MAGIC


def common_name(text: str) -> bytes:
    """DER of an X.520 common name, as it stands in the issuer of a PKCS#7 signature."""
    value = text.encode()
    return bytes.fromhex("0603550403") + bytes([0x0C, len(value)]) + value
