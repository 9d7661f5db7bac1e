"""What is to be carried of a lock, and where to: images with their parts, before what is attached to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driverforge_mirror.lists.target import in_registry
from driverforge_mirror.shapes import MirrorContent, MirrorLockDocument
from driverforge_oci.client import Manifest
from driverforge_oci.reference import Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An image of a lock, or what is attached to one. `name` is its reference, `place` where it is to lie.

    `subject` is the digest in whose list of referrers it stands, '' for what has a tag; `above` the name of
    the image that it is attached to.
    """

    name: str
    place: Reference
    content: MirrorContent
    subject: str = ""
    above: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """An image: `source` is the repository that has it, `place` where it is to lie, with its tag if any.

    `manifests` are those of an index, `blobs` all that they are made of; both map digests to sizes in bytes.
    `subject` and `above` are those of its Entry, `made` is its manifest where no source has it, `addresses`
    says where blobs are that no registry has.
    """

    image: str
    digest: str
    source: Reference
    place: Reference
    manifests: Mapping[str, int]
    blobs: Mapping[str, int]
    made: Manifest | None = None
    subject: str = ""
    above: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)

    @property
    def standing(self) -> Reference:
        """What a mirror is asked for it by: its tag where it has one, else its digest."""
        tag = self.place.tag
        return self.place.with_tag(tag) if tag else self.place.with_digest(self.digest)


def entries(lock: MirrorLockDocument, places: Mapping[str, Reference]) -> list[Entry]:
    """All of a lock in its order, each once. `places` are those of its images."""
    found: dict[str, Entry] = {}
    for image in lock["images"]:
        name, place = image["image"], places[image["image"]]
        found[name] = Entry(name=name, place=place, content=image)
        for one in image["attached"]:
            own = str(_attached_to(Reference.parse(name), one["tag"], one["digest"]))
            found.setdefault(
                own,
                Entry(
                    name=own,
                    place=_attached_to(place, one["tag"], one["digest"]),
                    content=one,
                    subject="" if one["tag"] else one["subject"],
                    above=name,
                ),
            )
    return list(found.values())


def named_entries(lock: MirrorLockDocument) -> list[Entry]:
    """All of a lock where its names say that it lies."""
    return entries(lock, {image["image"]: Reference.parse(image["image"]) for image in lock["images"]})


def _attached_to(image: Reference, tag: str, digest: str) -> Reference:
    return image.with_tag(tag) if tag else image.with_digest(digest)


def loads(
    lock: MirrorLockDocument, places: Mapping[str, Reference], registries: Mapping[str, str]
) -> list[Load]:
    """All of a lock in its order. `registries` as `in_registry` takes them."""
    return [_load(entry, registries) for entry in entries(lock, places)]


def _load(entry: Entry, registries: Mapping[str, str]) -> Load:
    digest, blobs = entry.content["digest"], dict[str, int]()
    for platform in entry.content["platforms"]:
        blobs |= platform["blobs"]
    text = entry.content["made"].encode()
    made = Manifest(media_type=entry.content["media_type"], digest=digest, data=text) if text else None
    below = {one["digest"]: one["size"] for one in entry.content["platforms"] if one["digest"] != digest}
    return Load(
        image=entry.name,
        digest=digest,
        source=in_registry(Reference.parse(entry.name), registries),
        place=entry.place,
        manifests=below,
        blobs=blobs,
        made=made,
        subject=entry.subject,
        above=entry.above,
        addresses=entry.content.get("addresses", {}),
    )
