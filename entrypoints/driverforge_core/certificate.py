"""The certificate (X.509, RFC 5280) of a key that signs kernel modules."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from dataclasses import dataclass
from datetime import datetime, timezone

from driverforge_core import der
from driverforge_core.cms import DIGESTS, OBJECT_IDENTIFIERS
from driverforge_core.errors import InputError, Unsupported

_PEM_LABEL = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----")
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_RSA = bytes.fromhex("2a864886f70d010101")
_COMMON_NAME = bytes.fromhex("550403")
_SUBJECT_KEY_IDENTIFIER = bytes.fromhex("551d0e")
_EXTENSIONS = 0xA3
_UTC_TIME = 0x17
_MAKE_ONE = (
    "make one: openssl req -x509 -newkey rsa:2048 -sha256 -days 3650 -subj '/CN=Your modules' "
    "-addext keyUsage=digitalSignature -addext extendedKeyUsage=codeSigning -keyout KEY -out CERTIFICATE"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """`issuer` is a Name in DER, `serial` the content of its INTEGER, `name` the subject's common name.

    `key_id` is in hexadecimal what a kernel shows behind the name in /proc/keys: the subject key identifier,
    the serial number where there is none.
    """

    der: bytes
    issuer: bytes
    serial: bytes
    name: str
    key_id: str
    not_before: datetime
    not_after: datetime
    modulus: int
    exponent: int

    @property
    def size(self) -> int:
        """Of a signature by its key, in bytes."""
        return (self.modulus.bit_length() + 7) // 8

    def recover(self, signature: bytes) -> tuple[str, bytes] | None:
        """Which digest algorithm and digest its key signed (RFC 8017, RSASSA-PKCS1-v1_5).

        None where the signature is not by this key, or of another kind.
        """
        value = int.from_bytes(signature, "big")
        if len(signature) != self.size or value >= self.modulus:
            return None
        message = pow(value, self.exponent, self.modulus).to_bytes(self.size, "big")
        for name in DIGESTS:
            # compared whole: what is looked for inside a message can be put there by anybody
            length = _LENGTHS[name]
            digest = message[-length:]
            if message == _padded(digest_info(name, digest), self.size):
                return name, digest
        return None


_LENGTHS = {"sha256": 32, "sha384": 48, "sha512": 64}


def digest_info(name: str, digest: bytes) -> bytes:
    """DigestInfo in DER: what an RSA key really signs, and what PKCS#11's mechanism RSA-PKCS is given."""
    oid = der.element(der.OBJECT_IDENTIFIER, OBJECT_IDENTIFIERS[name])
    algorithm = der.element(der.SEQUENCE, oid, der.NULL)
    return der.element(der.SEQUENCE, algorithm, der.element(der.OCTET_STRING, digest))


def _padded(info: bytes, size: int) -> bytes:
    return b"\x00\x01" + b"\xff" * (size - 3 - len(info)) + b"\x00" + info


def parse_certificate(data: bytes) -> Certificate:
    """A certificate in PEM or DER; what else is in the file (text, its key) is passed over.

    Raises InputError for what is none, Unsupported for one whose key is not RSA.
    """
    try:
        found = _PEM.search(data)
        return _read(b64decode(found[1]) if found else data)
    except (ValueError, IndexError, StopIteration, binascii.Error) as error:
        others = {found[1].decode() for found in _PEM_LABEL.finditer(data)}
        raise InputError(
            "there is no X.509 certificate in it",
            details=[
                f"it has: {', '.join(sorted(others))}" if others else "it is cut off, or something else"
            ],
            resolution=_MAKE_ONE,
        ) from error


def _read(data: bytes) -> Certificate:
    [(_, content)] = der.elements(data)
    (_, to_be_signed), *_ = der.elements(content)
    parts = [*der.elements(to_be_signed)]
    # version 1 does not say its version
    (_, serial), _, issuer, validity, subject, public_key, *rest = parts[parts[0][0] == der.EXPLICIT_0 :]
    begin, end = (_time(*one) for one in der.elements(validity[1]))
    modulus, exponent = _rsa(public_key[1])
    return Certificate(
        der=data,
        issuer=der.element(*issuer),
        serial=serial,
        name=_common_name(subject[1]),
        key_id=(_key_identifier(rest) or serial.lstrip(b"\0")).hex(),
        not_before=begin,
        not_after=end,
        modulus=modulus,
        exponent=exponent,
    )


def _rsa(public_key: bytes) -> tuple[int, int]:
    (_, algorithm), (_, bits) = der.elements(public_key)
    if next(der.elements(algorithm))[1] != _RSA:
        raise Unsupported(
            "the certificate's key is not RSA: firmware and shim know no other kind",
            resolution=_MAKE_ONE,
        )
    # the first byte of a BIT STRING says how many bits of its last one do not count
    [(_, key)] = der.elements(bits[1:])
    (_, modulus), (_, exponent) = der.elements(key)
    return int.from_bytes(modulus, "big"), int.from_bytes(exponent, "big")


def _time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # RFC 5280, 4.1.2.5.1
        text = ("20" if int(text[:2]) < 50 else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)


def _common_name(name: bytes) -> str:
    for _, relative in der.elements(name):
        for _, attribute in der.elements(relative):
            (_, kind), (_, value) = der.elements(attribute)
            if kind == _COMMON_NAME:
                return value.decode("utf-8", "replace")
    return ""


def _key_identifier(rest: list[tuple[int, bytes]]) -> bytes:
    for tag, content in rest:
        if tag != _EXTENSIONS:
            continue
        [(_, extensions)] = der.elements(content)
        for _, extension in der.elements(extensions):
            parts = [*der.elements(extension)]
            if parts[0][1] == _SUBJECT_KEY_IDENTIFIER:
                return next(der.elements(parts[-1][1]))[1]
    return b""
