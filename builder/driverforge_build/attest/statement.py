"""Statements about an image, and their signed form.

A statement is https://in-toto.io/Statement/v1; signed it is the payload of a DSSE envelope
(github.com/secure-systems-lab/dsse, protocol.md and envelope.md).
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from driverforge_oci import jsontext

STATEMENT = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
STATEMENT_TYPE = "application/vnd.in-toto+json"
ENVELOPE_TYPE = "application/vnd.dsse.envelope.v1+json"
_URL_SAFE = str.maketrans("-_", "+/")


def statement(name: str, digest: str, predicate_type: str, predicate: dict[str, Any]) -> dict[str, Any]:
    """What is said of the image `digest` ('sha256:…'), which is called `name`."""
    algorithm, _, value = digest.partition(":")
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {algorithm: value}}],
        "predicateType": predicate_type,
        "predicate": predicate,
    }


def to_be_signed(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the bytes that are signed, so that no other type can be claimed."""
    kind = STATEMENT_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def enveloped(payload: bytes, signature: bytes) -> bytes:
    """An envelope with one signature. Who made it, a verifier knows: its key has to be given anyway."""
    document = {
        "payloadType": STATEMENT_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"sig": base64.b64encode(signature).decode()}],
    }
    return json.dumps(document).encode() + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An attestation that was read: its statement as it was written, and the signatures over it.

    There are none over a statement without an envelope.
    """

    payload: bytes = field(repr=False)
    signatures: tuple[bytes, ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        document = jsontext.parse(self.payload)
        # `opened` has checked it
        assert isinstance(document, dict)
        return document


def opened(data: bytes) -> Opened | None:
    """Read a statement, or an envelope with one; None for what is neither."""
    document = _object(data)
    if document.get("_type") == STATEMENT:
        return Opened(payload=data)
    if document.get("payloadType") != STATEMENT_TYPE:
        return None
    try:
        payload = _decoded(document["payload"])
        signatures = tuple(_decoded(one["sig"]) for one in document["signatures"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    if _object(payload).get("_type") != STATEMENT:
        return None
    return Opened(payload=payload, signatures=signatures)


def _decoded(text: str) -> bytes:
    """Either alphabet is allowed in envelopes (envelope.md)."""
    return base64.b64decode(text.translate(_URL_SAFE))


def about(document: dict[str, Any], digest: str) -> bool:
    """Whether a statement is about the image of a digest. One that was attached to another is about that."""
    algorithm, _, value = digest.partition(":")
    subjects = document.get("subject")
    return isinstance(subjects, list) and any(
        isinstance(one, dict)
        and isinstance(one.get("digest"), dict)
        and one["digest"].get(algorithm) == value
        for one in subjects
    )


def _object(data: bytes) -> dict[str, Any]:
    try:
        document = jsontext.parse(data)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
