"""The signature of a kernel module: a CMS message (PKCS#7, RFC 5652) without certificates and content."""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_core import der
from driverforge_core.errors import InputError

_SIGNED_DATA = bytes.fromhex("2a864886f70d010702")
_DATA = bytes.fromhex("2a864886f70d010701")
_RSA = bytes.fromhex("2a864886f70d010101")
# RFC 5754, RFC 8702: object identifiers of digest algorithms, in DER
_DIGESTS = {
    bytes.fromhex("2b0e03021a"): "sha1",
    bytes.fromhex("608648016503040204"): "sha224",
    bytes.fromhex("608648016503040201"): "sha256",
    bytes.fromhex("608648016503040202"): "sha384",
    bytes.fromhex("608648016503040203"): "sha512",
    bytes.fromhex("608648016503040208"): "sha3-256",
    bytes.fromhex("608648016503040209"): "sha3-384",
    bytes.fromhex("60864801650304020a"): "sha3-512",
}
OBJECT_IDENTIFIERS = {name: oid for oid, name in _DIGESTS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerInfo:
    """`key_id` is the serial number of the signer's certificate, or its subject key identifier.

    `issuer` is the certificate's, in DER, b'' where the signer is named by key identifier. `digest` is the
    digest algorithm's name, '' for one that is not known here. `attributes`: not the content is signed, but
    attributes that name its digest.
    """

    key_id: bytes = b""
    issuer: bytes = b""
    digest: str = ""
    attributes: bool = False
    signature: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedData:
    """`detached`: the content that is signed is not in the message."""

    detached: bool
    signers: tuple[SignerInfo, ...]


def is_signed_data(data: bytes) -> bool:
    """Whether this begins as a CMS message with signatures does."""
    return data[:1] == bytes([der.SEQUENCE]) and _oid(_SIGNED_DATA) in data[:20]


def read_signed_data(message: bytes) -> SignedData:
    """Raises InputError for what is no such message."""
    try:
        [(_, content_info)] = der.elements(message)
        (_, kind), (_, explicit) = der.elements(content_info)
        if kind != _SIGNED_DATA:
            raise ValueError("it is another kind of message")
        [(_, signed_data)] = der.elements(explicit)
        _, _, (_, content), *_, (_, signers) = der.elements(signed_data)
        return SignedData(
            detached=len([*der.elements(content)]) == 1,
            signers=tuple(_signer(signer) for _, signer in der.elements(signers)),
        )
    except (ValueError, IndexError, StopIteration) as error:
        raise InputError(
            "the signature is no CMS message", details=[str(error) or "it is cut off"]
        ) from error


def first_signer(message: bytes) -> SignerInfo:
    """The first SignerInfo of a SignedData message; an empty one for what is no such message."""
    try:
        signers = read_signed_data(message).signers
    except InputError:
        return SignerInfo()
    return signers[0] if signers else SignerInfo()


def _signer(content: bytes) -> SignerInfo:
    _, (tag, identifier), (_, algorithm), *rest = der.elements(content)
    parts = [*der.elements(identifier)] if tag == der.SEQUENCE else []
    # subjectKeyIdentifier has tag [0]
    key_id = parts[1][1] if parts else identifier
    attributes = rest[0][0] == der.EXPLICIT_0
    return SignerInfo(
        # a leading zero keeps an INTEGER from being negative
        key_id=key_id.lstrip(b"\0"),
        issuer=der.element(*parts[0]) if parts else b"",
        digest=_DIGESTS.get(next(der.elements(algorithm))[1], ""),
        attributes=attributes,
        signature=rest[2 if attributes else 1][1],
    )


def signed_by(*, issuer: bytes, serial: bytes, digest: str, signature: bytes) -> bytes:
    """The message that says: the key of this certificate made this signature (RSA, PKCS#1 v1.5).

    As `openssl cms -sign -binary -noattr -nocerts` writes it. `issuer` is DER, `serial` the content of the
    certificate's INTEGER.
    """
    hashed = der.element(der.SEQUENCE, _oid(OBJECT_IDENTIFIERS[digest]))
    version = der.element(der.INTEGER, b"\x01")
    signer = der.element(
        der.SEQUENCE,
        version,
        der.element(der.SEQUENCE, issuer, der.element(der.INTEGER, serial)),
        hashed,
        der.element(der.SEQUENCE, _oid(_RSA), der.NULL),
        der.element(der.OCTET_STRING, signature),
    )
    signed_data = der.element(
        der.SEQUENCE,
        version,
        der.element(der.SET, hashed),
        der.element(der.SEQUENCE, _oid(_DATA)),
        der.element(der.SET, signer),
    )
    return der.element(der.SEQUENCE, _oid(_SIGNED_DATA), der.element(der.EXPLICIT_0, signed_data))


def _oid(content: bytes) -> bytes:
    return der.element(der.OBJECT_IDENTIFIER, content)
