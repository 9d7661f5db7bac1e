"""What refers to an image, sorted by what it is for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from driverforge_build.attest import sbom
from driverforge_build.attest.statement import ENVELOPE_TYPE, PROVENANCE, STATEMENT_TYPE, TEST_RESULT
from driverforge_oci.client import Descriptor

if TYPE_CHECKING:
    from driverforge_build.documents.proofs import AttachedArtifact


class Kind(Enum):
    SBOM = "sbom"
    PROVENANCE = "provenance"
    TEST_RESULT = "test-result"
    """Of `driverforge verify`, or of whatever else tests images."""
    SIGNATURE = "signature"
    OTHER = "other"


OUR_KINDS = (Kind.SBOM, Kind.PROVENANCE, Kind.TEST_RESULT)
KIND_KEY = "io.driverforge.attests"
"""The annotation of what we attach ourselves."""
PREDICATE_KEY = "in-toto.io/predicate-type"
CREATED_KEY = "org.opencontainers.image.created"

_TYPES = {
    sbom.MEDIA_TYPE: Kind.SBOM,
    "application/spdx+json": Kind.SBOM,
    "application/vnd.cncf.notary.signature": Kind.SIGNATURE,
    "application/vnd.dev.cosign.artifact.sig.v1+json": Kind.SIGNATURE,
}
_PREDICATES = {
    PROVENANCE: Kind.PROVENANCE,
    TEST_RESULT: Kind.TEST_RESULT,
    "https://cyclonedx.org/bom": Kind.SBOM,
    "https://spdx.dev/Document": Kind.SBOM,
    "https://sigstore.dev/cosign/sign/v1": Kind.SIGNATURE,
}
# as BuildKit's and our own artifacts say it, and sigstore's bundles
_PREDICATE_KEYS = (PREDICATE_KEY, "dev.sigstore.bundle.predicateType")


def slot(kind: Kind) -> str:
    """The end of an artifact's tag at a registry that keeps no list of referrers."""
    return f"driverforge-{kind.value}"


SLOTS = tuple(slot(kind) for kind in OUR_KINDS)


def annotation(referrer: Descriptor, key: str) -> str:
    return dict(referrer.annotations).get(key, "")


def kind_of(referrer: Descriptor) -> Kind:
    """What an artifact is for, by its type and its annotations."""
    if known := _TYPES.get(referrer.artifact_type):
        return known
    kinds = (kind_of_predicate(annotation(referrer, key)) for key in _PREDICATE_KEYS)
    return next((kind for kind in kinds if kind is not Kind.OTHER), Kind.OTHER)


def kind_of_predicate(name: object) -> Kind:
    """What a statement is for, by the type of what it says."""
    return _PREDICATES.get(name, Kind.OTHER) if isinstance(name, str) else Kind.OTHER


def is_ours(referrer: Descriptor, kind: Kind) -> bool:
    """Whether `driverforge` attached it, as it says itself."""
    return annotation(referrer, KIND_KEY) == kind.value


def is_enveloped(referrer: Descriptor) -> bool:
    """Whether it is in an envelope, which says nothing of whose signature is in there."""
    return referrer.artifact_type == ENVELOPE_TYPE


def is_statement(referrer: Descriptor) -> bool:
    return referrer.artifact_type in (STATEMENT_TYPE, ENVELOPE_TYPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """One artifact that an image has; `sent` is False where it was there already.

    `digest` is '' for a signature that the registry does not show.
    """

    kind: Kind
    digest: str
    signed: bool
    sent: bool

    def line(self) -> str:
        """For people."""
        facts = [*(["signed"] if self.signed else []), *([] if self.sent else ["was there"])]
        where = self.digest or "kept elsewhere"
        return f"{self.kind.value} {where}" + (f" ({', '.join(facts)})" if facts else "")

    def document(self) -> AttachedArtifact:
        return {
            "kind": self.kind.value,
            "digest": self.digest,
            "signed": self.signed,
            "sent": self.sent,
        }
