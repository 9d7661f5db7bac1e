"""What a kernel module says about itself.

That is the .modinfo section of the ELF file, and the signature appended to it. Formats: elf(5);
include/linux/moduleparam.h (.modinfo holds NUL-terminated key=value); include/linux/module_signature.h.
"""

from __future__ import annotations

import gzip
import lzma
import struct
import zlib
from dataclasses import dataclass

from driverforge_core.errors import InputError, Unsupported

_SIGNATURE_MAGIC = b"~Module signature appended~\n"
# algo, hash, id_type, signer_len, key_id_len, 3 bytes of padding, sig_len (big endian)
_SIGNATURE = struct.Struct(">BBBBB3xI")
_PKCS7 = 2  # enum pkey_id_type
_COMMON_NAME = bytes.fromhex("0603550403")  # DER of the object identifier 2.5.4.3
# UTF8String, PrintableString, T61String, IA5String
_STRINGS = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSignature:
    """The trailer of a signed module.

    `signer` is the common name of the key's issuer, '' where the signature names it by key id only.
    """

    signer: str
    key_id: bytes
    size: int
    """Of the signature proper, in bytes."""


def decompress(ko: bytes) -> bytes:
    """The bytes of a .ko, .ko.xz or .ko.gz.

    Raises Unsupported for .ko.zst (the standard library has no zstd), InputError for damaged data.
    """
    if ko.startswith(b"\x28\xb5\x2f\xfd"):
        raise Unsupported(
            "the module is compressed with zstd", resolution="decompress it first: zstd -d MODULE.ko.zst"
        )
    try:
        if ko.startswith(b"\xfd7zXZ\x00"):
            return lzma.decompress(ko, lzma.FORMAT_XZ)
        return gzip.decompress(ko) if ko.startswith(b"\x1f\x8b") else ko
    except (lzma.LZMAError, EOFError, OSError, zlib.error) as error:
        raise InputError("the compressed module is damaged", details=[str(error)]) from error


def read_modinfo(ko: bytes) -> dict[str, list[str]]:
    """Keys of .modinfo to their values, in the file's order.

    Keys are 'vermagic', 'depends', 'version', 'alias', 'parm', … Takes the file's bytes, compressed or not.
    InputError for what is no 64-bit little-endian ELF file with such a section.
    """
    try:
        section = _section(decompress(ko), b".modinfo")
    except (struct.error, OverflowError) as error:
        raise InputError(
            "the module's ELF structure points outside the file", details=[str(error)]
        ) from error
    found: dict[str, list[str]] = {}
    for entry in section.split(b"\0"):
        name, _, value = entry.decode("utf-8", "replace").partition("=")
        if name:
            found.setdefault(name, []).append(value)
    return found


def read_signature(ko: bytes) -> ModuleSignature | None:
    """The appended signature, or None for an unsigned module. It is described here, not verified."""
    data = decompress(ko)
    if not data.endswith(_SIGNATURE_MAGIC):
        return None
    end = len(data) - len(_SIGNATURE_MAGIC) - _SIGNATURE.size
    if end < 0:
        raise InputError("the module's signature trailer is longer than the file")
    _, _, id_type, signer_size, key_id_size, size = _SIGNATURE.unpack_from(data, end)
    start = end - size - key_id_size - signer_size
    if start < 0:
        raise InputError("the module's signature trailer is longer than the file")
    signer = data[start : start + signer_size].decode("utf-8", "replace")
    key_id = data[start + signer_size : end - size]
    return ModuleSignature(
        signer=signer or (_common_name(data[end - size : end]) if id_type == _PKCS7 else ""),
        key_id=key_id,
        size=size,
    )


def _section(data: bytes, wanted: bytes) -> bytes:
    if data[:6] != b"\x7fELF\x02\x01":
        raise InputError("not a kernel module: no 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)

    def header(index: int) -> tuple[int, int, int]:
        name, offset, length = struct.unpack_from("<I20xQQ", data, table + index * size)
        return name, offset, length

    _, names_offset, names_length = header(names_index)
    names = data[names_offset : names_offset + names_length]
    for index in range(count):
        name, offset, length = header(index)
        if names[name : names.find(b"\0", name)] == wanted:
            if offset + length > len(data):
                raise InputError(f"the module is cut off inside {wanted.decode()}")
            return data[offset : offset + length]
    raise InputError(f"not a kernel module: it has no {wanted.decode()} section")


def _common_name(signature: bytes) -> str:
    """The first common name in a PKCS#7 message.

    The kernel signs without certificates, so it is the signer's issuer.
    """
    at = signature.find(_COMMON_NAME)
    value = signature[at + len(_COMMON_NAME) :] if at >= 0 else b""
    # lengths from 128 on have another form; RFC 5280 allows 64
    if len(value) < 2 or value[0] not in _STRINGS or value[1] >= 0x80:
        return ""
    return value[2 : 2 + value[1]].decode(_STRINGS[value[0]], "replace")
