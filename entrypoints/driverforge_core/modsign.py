"""What a kernel asks of a module's signature, asked before a kernel does (kernel/module/signing.c,
crypto/asymmetric_keys/pkcs7_verify.c), and the signature made of what a signer gave.

Whoever signs may give a whole CMS message (`openssl cms -sign`, the kernel's `sign-file -d`) or the bare
signature of a key service, as bytes or in base64.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from driverforge_core import cms
from driverforge_core.certificate import Certificate
from driverforge_core.errors import InputError
from driverforge_core.modinfo import signature_message, without_signature

# bytes: of the smallest signature in use, and of a CMS message with many certificates
_SHORTEST = 32
_LONGEST = 64 << 10
_AS_OPENSSL = (
    "sign as `openssl cms -sign -binary -noattr -nocerts -outform DER` or the kernel's `sign-file -d` do"
)


def message_of(answer: bytes, content: bytes, certificate: Certificate, digests: Sequence[str]) -> bytes:
    """The CMS message for an unsigned module, made of a signer's answer and checked.

    `digests` are the algorithms that the kernel accepts. Raises InputError.
    """
    found = plain_signature(answer)
    if not found:
        raise InputError(
            "the signer gave no signature",
            details=[f"{len(answer)} bytes: {answer[:80]!r}"],
            resolution="it has to be CMS in DER or a bare signature, as bytes or in base64",
        )
    if cms.is_signed_data(found):
        message = found
    else:
        digest, _ = _signed(found, certificate)
        message = cms.signed_by(
            issuer=certificate.issuer, serial=certificate.serial, digest=digest, signature=found
        )
    check_message(message, content, certificate, digests)
    return message


def check_message(message: bytes, content: bytes, certificate: Certificate, digests: Sequence[str]) -> None:
    """Raises InputError where a kernel that trusts the certificate would not take this signature."""
    data = cms.read_signed_data(message)
    if not data.detached:
        raise InputError(
            "the signature contains what it signs: the kernel refuses that", resolution=_AS_OPENSSL
        )
    if len(data.signers) != 1:
        raise InputError(f"the message has {len(data.signers)} signatures, not one", resolution=_AS_OPENSSL)
    [signer] = data.signers
    if signer.attributes:
        raise InputError(
            "the signature is over attributes, not over the module: the kernel refuses that",
            resolution=_AS_OPENSSL,
        )
    named = signer.key_id.hex()
    serial = certificate.serial.lstrip(b"\0").hex()
    fits = (
        (signer.issuer, named) == (certificate.issuer, serial)
        if signer.issuer
        else named == certificate.key_id
    )
    if not fits:
        raise InputError(
            "the signature names another certificate",
            details=[f"it names {named}", f"the certificate is {_described(certificate)}, serial {serial}"],
            resolution="give the certificate of the key that signs",
        )
    digest, signed = _signed(signer.signature, certificate)
    if digest != signer.digest:
        raise InputError(
            f"the message says {signer.digest or 'no digest'}, and the signature is over {digest}"
        )
    if digest not in digests:
        raise InputError(
            f"the signature is over {digest}, which this kernel may not know",
            details=[f"its configuration has {', '.join(digests)}"],
            resolution=f"sign the module's {digests[0]} digest",
        )
    actual = hashlib.new(digest, content).digest()
    if signed != actual:
        raise InputError(
            "the signature is over something else than this module",
            details=[f"signed: {digest}:{signed.hex()}", f"module: {digest}:{actual.hex()}"],
            resolution="sign the very file; a module that was built again or stripped needs a new signature",
        )


def check_module(ko: bytes, certificate: Certificate, digests: Sequence[str]) -> None:
    """The same for a signed module as it is. Raises InputError."""
    message = signature_message(ko)
    if message is None:
        raise InputError("the module has no signature")
    check_message(message, without_signature(ko), certificate, digests)


def _signed(signature: bytes, certificate: Certificate) -> tuple[str, bytes]:
    found = certificate.recover(signature)
    if found is None:
        raise InputError(
            "the signature was not made by the certificate's key",
            details=[
                f"certificate: {_described(certificate)}, whose signatures have {certificate.size} bytes",
                f"signature: {len(signature)} bytes: {signature[:16].hex()}…",
            ],
            resolution="give the certificate of the key that signs; it has to sign as kernels verify: RSA, "
            "PKCS#1 v1.5, with sha256, sha384 or sha512",
        )
    return found


def _described(certificate: Certificate) -> str:
    return f"{certificate.name} {certificate.key_id}"


def plain_signature(answer: bytes) -> bytes:
    """The signature in what a signer gave, which may be base64; b"" where there is none.

    Text that is no base64 is a message, or a file in PEM.
    """
    if _is_text(answer):
        try:
            # base64(1) breaks lines
            answer = base64.b64decode(b"".join(answer.split()), validate=True)
        except ValueError:
            return b""
    return answer if _SHORTEST <= len(answer) <= _LONGEST else b""


def _is_text(answer: bytes) -> bool:
    try:
        text = answer.decode()
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character.isspace() for character in text)
