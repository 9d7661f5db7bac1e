"""What a mirror holds of a lock: by digest, and with every manifest and blob where that is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

from driverforge_core.errors import CommandFailed, DriverforgeError
from driverforge_mirror.lists.loads import Entry, entries
from driverforge_mirror.shapes import HeldImage, MirrorContent, MirrorLockDocument
from driverforge_oci.client import RegistryClient
from driverforge_oci.presence import ASKED_AT_ONCE, Absent, Present, Unknown, presence
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import referrers
from driverforge_oci.session import NotFound

_State = Literal["held", "incomplete", "absent", "moved", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """An image's state, and the digests that are there with their sizes."""

    image: HeldImage
    held: Mapping[str, int] = field(default_factory=dict)


def look(
    client: RegistryClient, document: MirrorLockDocument, places: Mapping[str, Reference], *, deep: bool
) -> list[Holding]:
    """The state of each entry of the lock, in its order. A registry that does not answer is `unknown`."""

    def one(entry: Entry) -> Holding:
        try:
            return _holding(client, entry, deep=deep)
        # this machine's own: the registry was not asked
        except CommandFailed:
            raise
        except DriverforgeError as error:
            return Holding(image=_state(entry, "unknown", reason=_told(error.brief, error.resolution)))

    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return list(pool.map(one, entries(document, places)))


def _holding(client: RegistryClient, entry: Entry, *, deep: bool) -> Holding:
    content, place = entry.content, entry.place
    answer = presence(client, place.with_digest(content["digest"]))
    if isinstance(answer, Unknown):
        return Holding(image=_state(entry, "unknown", reason=_told(answer.reason, answer.resolution)))
    parts = _parts(content)
    there = _there(client, parts, place) if deep else {}
    missing = sorted(digest for digest in parts if digest not in there) if deep else []
    if isinstance(answer, Absent):
        return Holding(image=_state(entry, "absent", missing=[content["digest"], *missing]), held=there)
    if deep:
        there[content["digest"]] = content["size"] - sum(size for size, _ in parts.values())
    if missing:
        return Holding(image=_state(entry, "incomplete", missing=missing), held=there)
    state, reason = _named(client, entry)
    return Holding(image=_state(entry, state, reason=reason), held=there)


def _named(client: RegistryClient, entry: Entry) -> tuple[_State, str]:
    """Whether what is there is found by its tag, or in the list of what refers to its subject."""
    place, digest = entry.place, entry.content["digest"]
    if entry.subject:
        listed = referrers(client, place.with_digest(entry.subject))
        if any(one.digest == digest for one in listed):
            return "held", ""
        return "moved", f"the mirror does not list it among what refers to {entry.subject}"
    if not place.tag:
        return "held", ""
    tagged = presence(client, place.with_tag(place.tag))
    if isinstance(tagged, Unknown):
        return "unknown", _told(tagged.reason, tagged.resolution)
    if isinstance(tagged, Present) and tagged.digest == digest:
        return "held", ""
    other = f"stands for {tagged.digest}" if isinstance(tagged, Present) else "does not exist"
    return "moved", f"the tag {place.tag} {other}"


def _told(reason: str, resolution: str) -> str:
    return "; ".join(filter(None, (reason, resolution)))


def _parts(content: MirrorContent) -> dict[str, tuple[int, bool]]:
    """The digest of all below the image's own: its size, and whether it is a manifest."""
    found: dict[str, tuple[int, bool]] = {}
    for platform in content["platforms"]:
        found |= {digest: (size, False) for digest, size in platform["blobs"].items()}
        if platform["digest"] != content["digest"]:
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


def _state(entry: Entry, state: _State, *, missing: Sequence[str] = (), reason: str = "") -> HeldImage:
    return {
        "image": entry.name,
        "place": str(entry.place),
        "digest": entry.content["digest"],
        "state": state,
        "missing": list(missing),
        "reason": reason,
    }
