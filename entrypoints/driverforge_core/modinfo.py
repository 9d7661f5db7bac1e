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

from driverforge_core.cms import SignerInfo, first_signer
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

    `signer` is the common name of the key's issuer, '' where the signature names it by key id only. `key_id`
    is what modinfo(8) shows as sig_key: the serial number or the key identifier of the signer's certificate;
    `digest` its sig_hashalgo. Both are empty in a signature that cannot be read.
    """

    signer: str
    key_id: bytes
    size: int
    """Of the signature proper, in bytes."""
    digest: str = ""


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
    section = _section(decompress(ko), b".modinfo")
    if section is None:
        raise InputError("not a kernel module: it has no .modinfo section")
    found: dict[str, list[str]] = {}
    for entry in section.split(b"\0"):
        name, _, value = entry.decode("utf-8", "replace").partition("=")
        if name:
            found.setdefault(name, []).append(value)
    return found


def exported_symbols(ko: bytes) -> frozenset[str]:
    """What a module offers to others: the strings of its __ksymtab_strings (include/linux/export.h).

    Names of symbol namespaces stand among them. Raises InputError as `read_modinfo` does.
    """
    section = _section(decompress(ko), b"__ksymtab_strings") or b""
    return frozenset(name.decode("utf-8", "replace") for name in section.split(b"\0") if name)


def read_signature(ko: bytes) -> ModuleSignature | None:
    """The appended signature, or None for an unsigned module. It is described here, not verified."""
    trailer = _trailer(decompress(ko))
    if trailer is None:
        return None
    pkcs7 = first_signer(trailer.message) if trailer.is_pkcs7 else SignerInfo()
    return ModuleSignature(
        signer=trailer.signer or (_common_name(trailer.message) if trailer.is_pkcs7 else ""),
        key_id=trailer.key_id or pkcs7.key_id,
        digest=pkcs7.digest,
        size=len(trailer.message),
    )


def signature_message(ko: bytes) -> bytes | None:
    """The CMS message of a signed module, None for an unsigned one.

    Raises InputError for the old kind of signature, which kernels from 4.3 on do not take.
    """
    trailer = _trailer(decompress(ko))
    if trailer and not trailer.is_pkcs7:
        raise InputError("the module's signature is no CMS message")
    return trailer.message if trailer else None


def without_signature(ko: bytes) -> bytes:
    """An unsigned copy of a module: its bytes, unpacked, without the trailer."""
    data = decompress(ko)
    trailer = _trailer(data)
    return data[: trailer.begin] if trailer else data


def with_signature(ko: bytes, message: bytes) -> bytes:
    """A signed copy of an unsigned module, as scripts/sign-file makes it of a CMS message."""
    return ko + message + _SIGNATURE.pack(0, 0, _PKCS7, 0, 0, len(message)) + _SIGNATURE_MAGIC


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trailer:
    """What is appended to a signed module, from the byte `begin` on."""

    begin: int
    signer: str
    key_id: bytes
    is_pkcs7: bool
    message: bytes


def _trailer(data: bytes) -> _Trailer | None:
    if not data.endswith(_SIGNATURE_MAGIC):
        return None
    end = len(data) - len(_SIGNATURE_MAGIC) - _SIGNATURE.size
    if end < 0:
        raise InputError("the module's signature trailer is longer than the file")
    _, _, id_type, signer_size, key_id_size, size = _SIGNATURE.unpack_from(data, end)
    begin = end - size - key_id_size - signer_size
    if begin < 0:
        raise InputError("the module's signature trailer is longer than the file")
    return _Trailer(
        begin=begin,
        signer=data[begin : begin + signer_size].decode("utf-8", "replace"),
        key_id=data[begin + signer_size : end - size],
        is_pkcs7=id_type == _PKCS7,
        message=data[end - size : end],
    )


def _section(data: bytes, wanted: bytes) -> bytes | None:
    """The content of a section, None where the file has none of that name."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise InputError("not a kernel module: no 64-bit little-endian ELF file")
    try:
        offset, length = _place(data, wanted)
    except (struct.error, OverflowError) as error:
        raise InputError(
            "the module's ELF structure points outside the file", details=[str(error)]
        ) from error
    if offset + length > len(data):
        raise InputError(f"the module is cut off inside {wanted.decode()}")
    return data[offset : offset + length] if offset else None


def _place(data: bytes, wanted: bytes) -> tuple[int, int]:
    """Offset and length of a section; (0, 0) where there is none, for at 0 is the file's own header."""
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
            return offset, length
    return 0, 0


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
