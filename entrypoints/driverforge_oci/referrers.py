"""Artifacts that say something about an image, found through its digest: SBOMs, attestations, signatures.

OCI image spec 1.1 (a manifest with `subject`), distribution spec 1.1 ("Pushing Manifests with Subject",
"Listing Referrers"). A registry without that list has its clients keep an index under the tag
sha256-<hex of the subject>. Two that write it at the same time can lose each other's entries, for nothing
says "write if unchanged". So each artifact has a tag of its own beside it, the `slot`, which stands before
the index is written; and whoever writes the index reads the slots and the index again until it has them all.
Whoever writes last has then seen what the others wrote before. Entries of programs that know no slots are
kept, as far as they can be seen.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from driverforge_core.errors import TemporaryFailure, Unavailable, Unsupported
from driverforge_oci.client import (
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    RegistryClient,
    descriptor,
    digest_of,
)
from driverforge_oci.reference import Reference
from driverforge_oci.session import NotFound

EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
EMPTY = b"{}"
ROUNDS = 10
"""How often the index may turn out to be another one than was just written, before that is an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One document about an image. `media_type` is its own, and the artifact's type.

    `slot` is the end of its tag where the registry keeps no list: one artifact of a slot is sure to be kept.
    """

    media_type: str
    content: bytes = field(repr=False)
    slot: str
    annotations: tuple[tuple[str, str], ...] = ()


def attach(client: RegistryClient, image: Reference, artifact: Artifact, slots: Sequence[str]) -> Descriptor:
    """Let an artifact refer to the image whose digest `image` is. The same one twice is there once.

    `slots` are all that the caller ever uses. Raises TemporaryFailure where others change the index faster
    than it can be read, and as RegistryClient does.
    """
    data = artifact_manifest(client.get_manifest(image), artifact)
    for blob in (EMPTY, artifact.content):
        client.put_blob(image, blob, digest=digest_of(blob), size=len(blob))
    place = image.with_digest(digest_of(data))
    if not _stored_and_listed(client, place, data):
        client.put_manifest(image.with_tag(_slot_tag(image, artifact.slot)), data, OCI_MANIFEST)
        keep_index(client, image, slots)
    return descriptor(_entry(Manifest(media_type=OCI_MANIFEST, digest=place.digest, data=data)))


def _stored_and_listed(client: RegistryClient, place: Reference, data: bytes) -> bool:
    """Store an artifact's manifest; whether the registry lists it by itself."""
    try:
        return client.put_referrer(place, data)
    except Unavailable as error:
        if isinstance(error, TemporaryFailure | NotFound):
            raise
        raise Unsupported(
            f"{place.host} does not take artifacts that refer to an image",
            details=[error.brief, *error.details],
            resolution="it has to know OCI's image specification 1.1; older ones know images alone",
        ) from error


def referrers(client: RegistryClient, image: Reference, slots: Sequence[str] = ()) -> tuple[Descriptor, ...]:
    """What refers to the image whose digest `image` is, whoever attached it; raises as RegistryClient."""
    listed = client.referrers(image)
    if listed is not None:
        return listed
    return tuple(descriptor(entry) for entry in _with_slots(client, image, _standing(client, image), slots))


def settled_referrers(
    client: RegistryClient, image: Reference, slots: Sequence[str]
) -> tuple[Descriptor, ...]:
    """As `referrers`, for a writer: what somebody who was killed has left in a slot is in the index then."""
    listed = client.referrers(image)
    return listed if listed is not None else keep_index(client, image, slots)


def content_of(client: RegistryClient, image: Reference, referrer: Descriptor, *, limit: int) -> bytes:
    """The document that an artifact holds: its first layer. Unsupported where it has none."""
    manifest = client.get_manifest(image.with_digest(referrer.digest))
    if not manifest.layers:
        raise Unsupported(f"{referrer.digest}, which refers to {image}, holds no document")
    sink = io.BytesIO()
    client.get_blob(image, manifest.layers[0].digest, sink, limit=limit)
    return sink.getvalue()


def referrers_tag(digest: str) -> str:
    """'sha256-<hex>' ("Referrers Tag Schema")."""
    algorithm, _, value = digest.partition(":")
    return f"{algorithm[:32]}-{value[:64]}"


def artifact_manifest(subject: Manifest, artifact: Artifact) -> bytes:
    """An artifact's manifest (image spec 1.1, "Guidelines for Artifact Usage"), the same bytes each time."""
    size = len(artifact.content)
    layer = {"mediaType": artifact.media_type, "digest": digest_of(artifact.content), "size": size}
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": artifact.media_type,
        "config": {"mediaType": EMPTY_TYPE, "digest": digest_of(EMPTY), "size": len(EMPTY)},
        "layers": [layer],
        "subject": {
            "mediaType": subject.media_type,
            "digest": subject.digest,
            "size": len(subject.data),
        },
        **({"annotations": dict(artifact.annotations)} if artifact.annotations else {}),
    }
    return json.dumps(document, separators=(",", ":")).encode()


def keep_index(client: RegistryClient, image: Reference, slots: Sequence[str]) -> tuple[Descriptor, ...]:
    """Let the index of a registry without a list have all that the slots stand for, beside what it had.

    Returns its entries. Raises as `attach`.
    """
    for _ in range(ROUNDS):
        before = _standing(client, image)
        entries = _with_slots(client, image, before, slots)
        if len(entries) == len(before):
            return tuple(descriptor(entry) for entry in entries)
        _put_index(client, image, entries)
    raise _restless(image)


def put_listed(client: RegistryClient, image: Reference, manifest: Manifest) -> None:
    """Store what somebody else has made to refer to the image whose digest `image` is, and let it be listed.

    Where the registry keeps no list, others who write it at the same time can take the entry away: it has no
    slot. Raises as `attach`.
    """
    place = image.with_digest(manifest.digest)
    if client.put_referrer(place, manifest.data, manifest.media_type):
        return
    for _ in range(ROUNDS):
        before = _standing(client, image)
        if any(entry["digest"] == manifest.digest for entry in before):
            return
        _put_index(client, image, [*before, _entry(manifest)])
    raise _restless(image)


def _put_index(client: RegistryClient, image: Reference, entries: Sequence[Any]) -> None:
    document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": list(entries)}
    data = json.dumps(document, separators=(",", ":")).encode()
    client.put_manifest(image.with_tag(referrers_tag(image.digest)), data, OCI_INDEX)


def _restless(image: Reference) -> TemporaryFailure:
    return TemporaryFailure(
        f"the list of what refers to {image} was changed by others {ROUNDS} times while it was written",
        resolution="run the same command again when they are done",
    )


def _standing(client: RegistryClient, image: Reference) -> list[Any]:
    """The entries of the index under the subject's tag, as they are written there.

    Others may know keys that we do not. None where there is no such tag.
    """
    tag = image.with_tag(referrers_tag(image.digest))
    try:
        index = client.get_manifest(tag)
    except NotFound:
        return []
    if not index.is_index:
        raise Unsupported(
            f"{tag} is no index, and this tag is where a registry's clients list what refers to an image",
            details=[f"it is {index.media_type or 'of no media type'}"],
            resolution="delete that tag if nobody uses it, or use a registry with OCI's referrers API",
        )
    # it can be read as descriptors, which checks its shape
    _ = index.children
    return list(index.document.get("manifests") or [])


def _with_slots(
    client: RegistryClient, image: Reference, entries: list[Any], slots: Sequence[str]
) -> list[Any]:
    known = {entry["digest"] for entry in entries}
    found = list(entries)
    for slot in slots:
        try:
            manifest = client.get_manifest(image.with_tag(_slot_tag(image, slot)))
        except NotFound:
            continue
        if manifest.digest not in known:
            found.append(_entry(manifest))
            known.add(manifest.digest)
    return found


def _slot_tag(image: Reference, slot: str) -> str:
    return f"{referrers_tag(image.digest)}.{slot}"


def _entry(manifest: Manifest) -> dict[str, Any]:
    """The descriptor that a list of referrers has for an artifact's manifest."""
    document = manifest.document
    return {
        "mediaType": manifest.media_type,
        "digest": manifest.digest,
        "size": len(manifest.data),
        # of an artifact without a type the configuration's counts
        "artifactType": document.get("artifactType")
        or ("" if manifest.is_index else manifest.config.media_type),
        **({"annotations": document["annotations"]} if document.get("annotations") else {}),
    }
