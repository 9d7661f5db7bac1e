"""As much of the protocol buffer wire format as the runtime interface's Status and Version need (protobuf.dev, "Encoding")."""

from __future__ import annotations

from collections.abc import Iterator

from driverforge_core.errors import InputError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, index after it). Raises InputError where the data ends inside."""
    value = shift = 0
    while at < len(data) and shift < 64:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at
    raise InputError("a protocol buffer ends inside a number")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of each field of a message: an int for numbers, bytes for text and messages. Raises InputError."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise InputError(f"a protocol buffer has a field of kind {kind}, which is none")
        if at + size > len(data):
            raise InputError("a protocol buffer ends inside a field")
        yield number, data[at : at + size]
        at += size


def texts(data: bytes, number: int) -> list[str]:
    """The text fields of that number, in order."""
    return [
        value.decode("utf-8", "replace")
        for found, value in fields(data)
        if found == number and isinstance(value, bytes)
    ]


def messages(data: bytes, number: int) -> list[bytes]:
    return [value for found, value in fields(data) if found == number and isinstance(value, bytes)]
