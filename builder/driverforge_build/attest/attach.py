"""What an image is to have attached, and getting it there once.

The subject is the image of one platform, by its own digest: the one that a node runs. The index over
architectures moves whenever one of them joins, so what is said of it would be about something else tomorrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from driverforge_build.attest import attached, sbom
from driverforge_build.attest.attached import Attached, Kind
from driverforge_build.attest.provenance import BuildSpan, Origin, provenance
from driverforge_build.attest.statement import (
    ENVELOPE_TYPE,
    PROVENANCE,
    STATEMENT_TYPE,
    TEST_RESULT,
    enveloped,
    opened,
    to_be_signed,
)
from driverforge_build.ports import ImageSigner, StatementSigner
from driverforge_build.render.context import BuildContext
from driverforge_oci.client import Descriptor, RegistryClient
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import (
    Artifact,
    attach,
    content_of,
    referrers,
    referrers_tag,
    settled_referrers,
)
from driverforge_oci.session import NotFound

NOBODY = Origin()
"""For who attaches what it has not built."""
LIMIT = 16 << 20
"""Bytes of a document that is read. An SBOM of a driver image has a tenth of a MiB."""
_PREDICATES = {Kind.PROVENANCE: PROVENANCE, Kind.TEST_RESULT: TEST_RESULT}


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attaching:
    """How a run attaches. Without a signer statements go as they are.

    Methods take the image as `place`, its repository with its digest, and raise as RegistryClient and the
    signer do. What was attached before that stays, and the next run finds it.
    """

    client: RegistryClient
    origin: Origin = NOBODY
    signer: StatementSigner | None = None
    image_signer: ImageSigner | None = None
    now: Callable[[], datetime] = _utc_now

    def attach_origin(
        self, context: BuildContext, place: Reference, *, name: str, built: BuildSpan | None
    ) -> Iterator[Attached]:
        """SBOM and provenance of an image, unless it has them; each as soon as it is there."""
        there = settled_referrers(self.client, place, attached.SLOTS)
        found = self._found(there, Kind.PROVENANCE)
        # a provenance of ours vouches for the SBOM that it names: only for one that was made here and now
        listed = self._found(there, Kind.SBOM) if found else None
        if listed is None:
            made = self._attach(place, Kind.SBOM, sbom.MEDIA_TYPE, sbom.sbom(context, place))
            listed = replace(made, sent=made.digest not in {one.digest for one in there})
        yield listed
        if found is None:
            payload = provenance(context, place, self.origin, name=name, sbom=listed.digest, built=built)
            found = self._attach_statement(place, Kind.PROVENANCE, payload)
        yield found
        if self.image_signer:
            yield self._signed(place, self.image_signer)

    def attach_result(self, place: Reference, payload: bytes) -> Attached:
        """A test's statement, unless the newest one that was attached says the same."""
        there = settled_referrers(self.client, place, attached.SLOTS)
        newest = newest_of(there, Kind.TEST_RESULT)
        if newest and self._is_good(newest):
            before = opened(content_of(self.client, place, newest, limit=LIMIT))
            if before and before.payload == payload:
                return _was_there(newest, Kind.TEST_RESULT)
        return self._attach_statement(place, Kind.TEST_RESULT, payload)

    def _signed(self, place: Reference, signer: ImageSigner) -> Attached:
        """The image's own signature: one that is there, else of the signer.

        One that keeps it where a registry does not show it is asked each time.
        """
        before = signature_of(self.client, place)
        if not before:
            signer.sign_image(str(place))
        digest = before or signature_of(self.client, place)
        return Attached(kind=Kind.SIGNATURE, digest=digest, signed=True, sent=not before)

    def _found(self, there: Iterable[Descriptor], kind: Kind) -> Attached | None:
        ours = (one for one in there if attached.is_ours(one, kind))
        good = (one for one in ours if kind is Kind.SBOM or self._is_good(one))
        return next((_was_there(one, kind) for one in good), None)

    def _is_good(self, statement: Descriptor) -> bool:
        """Whether it need not be attached once more: one without signature is not what a signer is for."""
        return self.signer is None or attached.is_enveloped(statement)

    def _attach_statement(self, place: Reference, kind: Kind, payload: bytes) -> Attached:
        predicate = _PREDICATES[kind]
        said = {
            attached.PREDICATE_KEY: predicate,
            attached.CREATED_KEY: self.now().isoformat("T", "milliseconds"),
        }
        if self.signer is None:
            return self._attach(place, kind, STATEMENT_TYPE, payload, **said)
        signature = self.signer.sign(to_be_signed(payload), image=str(place), predicate=predicate)
        return self._attach(place, kind, ENVELOPE_TYPE, enveloped(payload, signature), **said)

    def _attach(
        self, place: Reference, kind: Kind, media_type: str, content: bytes, **annotations: str
    ) -> Attached:
        artifact = Artifact(
            media_type=media_type,
            content=content,
            slot=attached.slot(kind),
            annotations=((attached.KIND_KEY, kind.value), *annotations.items()),
        )
        made = attach(self.client, place, artifact, attached.SLOTS)
        return Attached(kind=kind, digest=made.digest, signed=attached.is_enveloped(made), sent=True)


def signature_of(client: RegistryClient, place: Reference) -> str:
    """The digest of an image's signature: one that refers to it, or cosign's under a tag; '' without any."""
    listed = (one.digest for one in referrers(client, place) if attached.kind_of(one) is Kind.SIGNATURE)
    if found := next(listed, ""):
        return found
    try:
        return client.head_manifest(place.with_tag(f"{referrers_tag(place.digest)}.sig")).digest
    except NotFound:
        return ""


def newest_of(there: Iterable[Descriptor], kind: Kind) -> Descriptor | None:
    """The newest of those that we attached. Of two of one moment the one with the greater digest."""
    ours = (one for one in there if attached.is_ours(one, kind))
    return max(
        ours, key=lambda one: (attached.annotation(one, attached.CREATED_KEY), one.digest), default=None
    )


def _was_there(referrer: Descriptor, kind: Kind) -> Attached:
    return Attached(kind=kind, digest=referrer.digest, signed=attached.is_enveloped(referrer), sent=False)
