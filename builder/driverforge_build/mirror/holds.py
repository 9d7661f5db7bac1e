"""What a mirror holds of a lock: by digest, and with every manifest and blob where that is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

from driverforge_build.documents import HeldImage, MirrorImage, MirrorLockDocument
from driverforge_build.plan.rows import ASKED_AT_ONCE
from driverforge_core.errors import CommandFailed, DriverforgeError
from driverforge_oci.client import RegistryClient
from driverforge_oci.presence import Absent, Present, Unknown, presence
from driverforge_oci.reference import Reference
from driverforge_oci.session import NotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """An image's state, and the digests that are there with their sizes."""

    image: HeldImage
    held: Mapping[str, int] = field(default_factory=dict)


def look(
    client: RegistryClient, document: MirrorLockDocument, places: Mapping[str, Reference], *, deep: bool
) -> list[Holding]:
    """The state of each image of the lock, in its order. A registry that does not answer is `unknown`."""

    def one(image: MirrorImage) -> Holding:
        place = places[image["image"]]
        try:
            return _holding(client, image, place, deep=deep)
        # this machine's own: the registry was not asked
        except CommandFailed:
            raise
        except DriverforgeError as error:
            return Holding(image=_state(image, place, "unknown", reason=error.brief))

    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return list(pool.map(one, document["images"]))


def _holding(client: RegistryClient, image: MirrorImage, place: Reference, *, deep: bool) -> Holding:
    answer = presence(client, place.with_digest(image["digest"]))
    if isinstance(answer, Unknown):
        return Holding(image=_state(image, place, "unknown", reason=answer.reason))
    parts = _parts(image)
    there = _there(client, parts, place) if deep else {}
    missing = sorted(digest for digest in parts if digest not in there) if deep else []
    if isinstance(answer, Absent):
        return Holding(image=_state(image, place, "absent", missing=[image["digest"], *missing]), held=there)
    if deep:
        there[image["digest"]] = image["size"] - sum(size for size, _ in parts.values())
    if missing:
        return Holding(image=_state(image, place, "incomplete", missing=missing), held=there)
    tagged = presence(client, place.with_tag(place.tag)) if place.tag else answer
    if isinstance(tagged, Unknown):
        return Holding(image=_state(image, place, "unknown", reason=tagged.reason), held=there)
    if not isinstance(tagged, Present) or tagged.digest != image["digest"]:
        other = f"stands for {tagged.digest}" if isinstance(tagged, Present) else "does not exist"
        return Holding(image=_state(image, place, "moved", reason=f"the tag {place.tag} {other}"), held=there)
    return Holding(image=_state(image, place, "held"), held=there)


def _parts(image: MirrorImage) -> dict[str, tuple[int, bool]]:
    """The digest of all below the image's own: its size, and whether it is a manifest."""
    found: dict[str, tuple[int, bool]] = {}
    for platform in image["platforms"]:
        found |= {digest: (size, False) for digest, size in platform["blobs"].items()}
        if platform["digest"] != image["digest"]:
            found[platform["digest"]] = (platform["size"], True)
    return found


def _there(client: RegistryClient, parts: Mapping[str, tuple[int, bool]], place: Reference) -> dict[str, int]:
    """Those that the registry has, with their sizes by the lock."""
    return {
        digest: size
        for digest, (size, manifest) in parts.items()
        if (_has_manifest(client, place, digest) if manifest else client.has_blob(place, digest))
    }


def _has_manifest(client: RegistryClient, place: Reference, digest: str) -> bool:
    try:
        client.head_manifest(place.with_digest(digest))
    except NotFound:
        return False
    return True


def _state(
    image: MirrorImage,
    place: Reference,
    state: Literal["held", "incomplete", "absent", "moved", "unknown"],
    *,
    missing: Sequence[str] = (),
    reason: str = "",
) -> HeldImage:
    return {
        "image": image["image"],
        "place": str(place),
        "digest": image["digest"],
        "state": state,
        "missing": list(missing),
        "reason": reason,
    }
