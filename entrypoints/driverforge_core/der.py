"""DER, as X.690 chapters 8 and 10 have it: as much as certificates and signatures of modules need."""

from __future__ import annotations

from collections.abc import Iterator

INTEGER = 0x02
OCTET_STRING = 0x04
OBJECT_IDENTIFIER = 0x06
SEQUENCE = 0x30
SET = 0x31
EXPLICIT_0 = 0xA0
NULL = bytes.fromhex("0500")


def elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element. Raises ValueError, IndexError where one is cut."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length >= 0x80:
            size = length & 0x7F
            if not size:
                raise ValueError("DER has no indefinite lengths")
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        if at + length > len(der):
            raise ValueError("an element is cut off")
        yield tag, der[at : at + length]
        at += length


def element(tag: int, *contents: bytes) -> bytes:
    """The element with these contents, one behind the other."""
    content = b"".join(contents)
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    size = (len(content).bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + len(content).to_bytes(size, "big") + content
