"""Who signed a CMS message (PKCS#7, RFC 5652): the few fields of its DER that name the key.

A kernel module's signature is such a message, without certificates and without content.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_SEQUENCE = 0x30
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerInfo:
    """`key_id` is the serial number of the signer's certificate, or its subject key identifier.

    `digest` is the digest algorithm's name. Both are empty where the message does not say it.
    """

    key_id: bytes = b""
    digest: str = ""


def first_signer(message: bytes) -> SignerInfo:
    """The first SignerInfo of a SignedData message; an empty one for what is no such message."""
    try:
        [(_, content_info)] = _elements(message)
        _, (_, explicit) = _elements(content_info)
        [(_, signed_data)] = _elements(explicit)
        *_, (_, signers) = _elements(signed_data)
        _, (tag, identifier), (_, algorithm), *_ = _elements(next(_elements(signers))[1])
        # issuerAndSerialNumber is a SEQUENCE, subjectKeyIdentifier has tag [0]
        key_id = [*_elements(identifier)][1][1] if tag == _SEQUENCE else identifier
        oid = next(_elements(algorithm))[1]
    except (ValueError, IndexError, StopIteration):
        return SignerInfo()
    # a leading zero keeps an INTEGER from being negative
    return SignerInfo(key_id=key_id.lstrip(b"\0"), digest=_DIGESTS.get(oid, ""))


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element, X.690 chapter 8. Raises ValueError, IndexError where one is cut."""
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
