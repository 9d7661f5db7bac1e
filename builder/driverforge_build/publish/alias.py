"""The moving tag: one OCI image index for all architectures, that many writers join without losing an entry.

Two jobs of a pipeline push the images of two architectures at the same time, and a registry knows no "write
if unchanged". What is true stands elsewhere: each architecture's immutable tag is written before the index,
once, by one writer. So a writer reads those tags and what the index holds, writes the index, and reads all of
it again, until nothing is to be changed. Whoever writes last has then seen what all others wrote before.

An index stands for one driver version. NVIDIA's tag for precompiled images, `<branch>-<kernel>-<os>`, could
stand for two: `VersionsDiffer` names them, and the index stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driverforge_build.publish.lookup import made_from, unanswered
from driverforge_core.cell import CellId
from driverforge_core.errors import DriverforgeError, InputError, TemporaryFailure
from driverforge_oci.client import OCI_INDEX, Descriptor, Manifest, RegistryClient
from driverforge_oci.presence import Absent, Present, labels
from driverforge_oci.reference import Reference
from driverforge_oci.session import NotFound

ROUNDS = 10
"""How often an index may turn out to be another one than was just written, before that is an error."""
CELL_LABEL = "io.driverforge.cell"


class VersionsDiffer(InputError):
    """The images that an index is to hold are of different drivers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """The image of one platform ('linux/amd64'): its immutable tag, and the inputs it has to be made from."""

    platform: str
    reference: Reference
    inputs: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What an index stands for now: the digest of each platform's image.

    `found` are the platforms whose member the registry has; what stands for others is of an earlier time.
    """

    digest: str
    moved: bool
    images: Mapping[str, str]
    found: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a tag stands for. `data` is the index that is there, empty where there is none."""

    entries: Mapping[str, Descriptor]
    digest: str = ""
    data: bytes = b""


def join(client: RegistryClient, alias: Reference, members: Sequence[Member]) -> Joined:
    """Let a tag stand for those members that the registry has, and for what it stood for elsewhere.

    Raises VersionsDiffer, and TemporaryFailure where others change the index faster than it can be read.
    """
    moved = False
    for _ in range(ROUNDS):
        standing = standing_for(client, alias)
        found = {member.platform: found_member(client, member) for member in members}
        there = {platform: entry for platform, entry in found.items() if entry is not None}
        entries = {**standing.entries, **there}
        if not entries:
            return Joined(digest="", moved=False, images={})
        data = index_text([entries[name] for name in sorted(entries)]).encode()
        if data == standing.data:
            images = {platform: entry.digest for platform, entry in entries.items()}
            return Joined(digest=standing.digest, moved=moved, images=images, found=frozenset(there))
        versions = {member.platform: member.version for member in members if member.platform in there}
        _check_versions(client, alias, entries, versions)
        client.put_manifest(alias, data, OCI_INDEX)
        moved = True
    raise TemporaryFailure(
        f"{alias} was changed by others {ROUNDS} times while it was written",
        resolution="run the same command again when they are done",
    )


def found_member(client: RegistryClient, member: Member) -> Descriptor | None:
    """The member's image; None where it is not there, or its tag stands for other inputs.

    Raises Unavailable where the registry does not say.
    """
    answer = made_from(client, member.reference, member.inputs, member.platform)
    if isinstance(answer, Absent):
        return None
    if not isinstance(answer, Present):
        raise unanswered(member.reference, answer)
    image = client.resolve(member.reference.with_digest(answer.digest), member.platform)
    return _descriptor(image, member.platform)


def standing_for(client: RegistryClient, alias: Reference) -> Standing:
    """Platform images that a tag stands for now; none where there is no such tag.

    Attestations are left out: they belong to the index that named them.
    """
    try:
        manifest = client.get_manifest(alias)
    except NotFound:
        return Standing(entries={})
    if manifest.is_index:
        children = [child for child in manifest.children if child.platform]
        entries = {child.platform: child for child in children if "unknown" not in child.platform}
        return Standing(entries=entries, digest=manifest.digest, data=manifest.data)
    arch = client.image_configuration(alias, manifest).get("architecture", "")
    platform = f"linux/{arch if isinstance(arch, str) else ''}"
    return Standing(entries={platform: _descriptor(manifest, platform)})


def _check_versions(
    client: RegistryClient, alias: Reference, entries: Mapping[str, Descriptor], known: Mapping[str, str]
) -> None:
    """Raises VersionsDiffer, which names both. An image that does not say its version is believed."""
    found = {
        platform: known.get(platform) or _version(client, alias.with_digest(entry.digest), platform)
        for platform, entry in entries.items()
    }
    stated = {platform: version for platform, version in sorted(found.items()) if version}
    if len(set(stated.values())) > 1:
        raise VersionsDiffer(
            f"{alias} would stand for different drivers: "
            + ", ".join(f"{version} on {platform}" for platform, version in stated.items()),
            details=[f"{platform}: {entries[platform].digest}" for platform in stated],
            resolution="push the missing image of the newer one; `driverforge index` then moves the tag for "
            "all architectures at once. Where none is to come any more, delete the tag in the registry: "
            "`driverforge index` writes it anew",
        )


def _version(client: RegistryClient, image: Reference, platform: str) -> str:
    """The driver version that our label of the cell names; '' for anybody else's image."""
    try:
        return str(CellId.parse(labels(client, image, platform).get(CELL_LABEL, "")).driver)
    except DriverforgeError:
        return ""


def _descriptor(image: Manifest, platform: str) -> Descriptor:
    return Descriptor(
        media_type=image.media_type, digest=image.digest, size=len(image.data), platform=platform
    )


def index_text(entries: list[Descriptor]) -> str:
    """An OCI image index (image spec 1.1); the same entries give the same bytes."""
    return json.dumps(
        {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [_entry(entry) for entry in entries]},
        separators=(",", ":"),
    )


def _entry(entry: Descriptor) -> dict[str, Any]:
    names = ("os", "architecture", "variant")
    platform = dict(zip(names, entry.platform.split("/"), strict=False))
    return {"mediaType": entry.media_type, "digest": entry.digest, "size": entry.size, "platform": platform}
