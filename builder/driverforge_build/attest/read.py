"""Reading what is attached to an image: what it says, and whether to believe it.

A registry lists whatever anybody attached. With a verifier only what it accepts counts: a statement by its
signature, an SBOM where an accepted provenance names it. A statement about another image never does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from driverforge_build.attest import attached
from driverforge_build.attest.attach import LIMIT
from driverforge_build.attest.attached import Kind
from driverforge_build.attest.statement import Opened, about, opened, to_be_signed
from driverforge_build.ports import StatementVerifier
from driverforge_core.errors import TemporaryFailure, Unavailable, Unsupported
from driverforge_oci import jsontext
from driverforge_oci.client import Descriptor, RegistryClient
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import content_of, referrers

if TYPE_CHECKING:
    from driverforge_build.documents.proofs import Attestation


_SIGNATURES = 16
"""A program is run for each of them, and whoever may push says how many there are."""
_ALL_LIMIT = 2 * LIMIT
"""Bytes of all documents of an image. They are held in memory, where JSON takes some twenty times as much."""


class Trust(Enum):
    UNSIGNED = "unsigned"
    UNCHECKED = "unchecked"
    """It has a signature, and nobody said whose are to be trusted."""
    ACCEPTED = "accepted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One artifact. `reason` is why it is not believed; `content` is empty where it was not read."""

    kind: Kind
    referrer: Descriptor
    trust: Trust = Trust.UNSIGNED
    reason: str = ""
    content: bytes = field(default=b"", repr=False)
    said: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def created(self) -> str:
        return attached.annotation(self.referrer, attached.CREATED_KEY)

    @property
    def predicate(self) -> Mapping[str, Any]:
        return _object(self.said.get("predicate"))

    @property
    def result(self) -> str:
        """What a test's statement says: PASSED, WARNED or FAILED; '' for anything else."""
        said = self.predicate.get("result") if self.kind is Kind.TEST_RESULT else ""
        return said if isinstance(said, str) else ""

    def facts(self) -> str:
        """What it says, in a line for people."""
        if self.reason:
            return self.reason
        if self.kind is Kind.SBOM and "components" in self.said:
            components = _list(self.said["components"])
            return f"CycloneDX {self.said.get('specVersion', '')}, {len(components)} components"
        if self.kind is Kind.PROVENANCE:
            return _origin_text(self.predicate)
        if self.kind is Kind.TEST_RESULT:
            return _result_text(self.predicate)
        return self.referrer.artifact_type

    def document(self) -> Attestation:
        return {
            "kind": self.kind.value,
            "digest": self.referrer.digest,
            "media_type": self.referrer.artifact_type,
            "created": self.created,
            "trust": self.trust.value,
            "reason": self.reason,
            "facts": self.facts(),
        }


def read_image(
    client: RegistryClient,
    place: Reference,
    verifier: StatementVerifier | None = None,
    *,
    kinds: Iterable[Kind] = (),
) -> tuple[Finding, ...]:
    """What the image whose digest `place` is has attached, of some kinds or of all.

    Raises as RegistryClient and the verifier do. What cannot be read is refused, and says so; so is what
    comes after more than anybody attaches.
    """
    wanted = frozenset(kinds) or frozenset(Kind)
    listed = [
        (attached.kind_of(one), one)
        for one in referrers(client, place, attached.SLOTS)
        if attached.kind_of(one) in wanted
    ]
    found: list[Finding] = []
    for kind, one in listed:
        limit = min(LIMIT, _ALL_LIMIT - sum(len(before.content) for before in found))
        found.append(_read(client, place, kind, one, verifier, limit=limit))
    return _with_named(tuple(found)) if verifier else tuple(found)


def believed(found: Iterable[Finding], kind: Kind, *, verified: bool) -> Finding | None:
    """The newest of a kind that counts; with `verified` only what a verifier accepted does.

    When it was attached is the registry's word, also where what it says is signed.
    """
    good = (Trust.ACCEPTED,) if verified else (Trust.UNSIGNED, Trust.UNCHECKED)
    ours = [one for one in found if one.kind is kind and one.trust in good]
    return max(ours, key=lambda one: (one.created, one.referrer.digest), default=None)


def lack(found: Iterable[Finding], kind: Kind, *, verified: bool) -> str:
    """Why an image does not have what is required of it; '' where it has."""
    newest = believed(found, kind, verified=verified)
    if newest is None:
        return f"no {kind.value}" + (" that the verifier accepts" if verified else "")
    if kind is Kind.TEST_RESULT and newest.result not in ("PASSED", "WARNED"):
        return f"test-result {newest.result or 'not stated'}"
    return ""


def _read(
    client: RegistryClient,
    place: Reference,
    kind: Kind,
    referrer: Descriptor,
    verifier: StatementVerifier | None,
    *,
    limit: int,
) -> Finding:
    plain = Finding(kind=kind, referrer=referrer)
    if kind is Kind.SIGNATURE or not (kind is Kind.SBOM or attached.is_statement(referrer)):
        return plain
    try:
        content = content_of(client, place, referrer, limit=limit)
    except TemporaryFailure:
        # a busy registry says nothing of what it holds
        raise
    except (Unsupported, Unavailable) as error:
        return replace(plain, trust=Trust.REFUSED, reason=error.brief)
    plain = replace(plain, content=content)
    if not attached.is_statement(referrer):
        return _believed_if_json(plain)
    statement = opened(content)
    if statement is None:
        return replace(plain, trust=Trust.REFUSED, reason="it is no in-toto statement")
    plain = replace(plain, said=statement.document)
    if not about(statement.document, place.digest):
        return replace(plain, trust=Trust.REFUSED, reason="it is about another image")
    predicate = statement.document.get("predicateType")
    # the annotation is not signed: a statement of one kind would pass for another
    if kind is not Kind.OTHER and attached.kind_of_predicate(predicate) is not kind:
        return replace(plain, trust=Trust.REFUSED, reason=f"it is a statement of another kind: {predicate}")
    if len(statement.signatures) > _SIGNATURES:
        return replace(plain, trust=Trust.REFUSED, reason=f"it has {len(statement.signatures)} signatures")
    trust, reason = _trust(statement, verifier)
    return replace(plain, trust=trust, reason=reason)


def _believed_if_json(sbom: Finding) -> Finding:
    try:
        return replace(sbom, said=_object(jsontext.parse(sbom.content)))
    except ValueError:
        return replace(sbom, trust=Trust.REFUSED, reason="it is no JSON")


def _trust(statement: Opened, verifier: StatementVerifier | None) -> tuple[Trust, str]:
    if not statement.signatures:
        return (Trust.REFUSED, "it is not signed") if verifier else (Trust.UNSIGNED, "")
    if verifier is None:
        return Trust.UNCHECKED, ""
    signed = to_be_signed(statement.payload)
    objections = [verifier.objection(signed, signature) for signature in statement.signatures]
    return (Trust.ACCEPTED, "") if "" in objections else (Trust.REFUSED, objections[-1])


def _with_named(found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """SBOMs are believed where an accepted provenance names them."""
    named = {
        f"sha256:{_object(_object(one).get('digest')).get('sha256')}"
        for finding in found
        if finding.kind is Kind.PROVENANCE and finding.trust is Trust.ACCEPTED
        for one in _list(_object(finding.predicate.get("runDetails")).get("byproducts"))
    }
    return tuple(_named(one, named) if one.kind is Kind.SBOM else one for one in found)


def _named(sbom: Finding, named: set[str]) -> Finding:
    if sbom.trust is not Trust.UNSIGNED:
        return sbom
    if sbom.referrer.digest in named:
        return replace(sbom, trust=Trust.ACCEPTED)
    return replace(sbom, trust=Trust.REFUSED, reason="no accepted provenance names it")


def _origin_text(predicate: Mapping[str, Any]) -> str:
    details = _object(predicate.get("runDetails"))
    definition = _object(predicate.get("buildDefinition"))
    source = _object(_object(definition.get("externalParameters")).get("source"))
    commit = _object(source.get("digest")).get("gitCommit", "")
    finished = _object(details.get("metadata")).get("finishedOn", "")
    parts = [
        *([f"built {finished}"] if finished else []),
        f"by {_object(details.get('builder')).get('id', 'nobody named')}",
        *([f"from {source['uri']}" + (f"@{commit}" if commit else "")] if source.get("uri") else []),
    ]
    return " ".join(parts)


def _result_text(predicate: Mapping[str, Any]) -> str:
    counted = ((word, len(_list(predicate.get(f"{word}Tests")))) for word in ("passed", "warned", "failed"))
    return f"{predicate.get('result', '')}: " + ", ".join(
        f"{count} {word}" for word, count in counted if count
    )


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
