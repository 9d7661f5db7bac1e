"""Artifacts that are made here of files which no registry has, so that a mirror and an archive carry them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from driverforge_core.errors import InputError
from driverforge_mirror.contents.found import Found, Platform
from driverforge_mirror.lists.mediatypes import DATA, TITLE
from driverforge_mirror.needs.needed import Reason
from driverforge_oci.client import OCI_MANIFEST, digest_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedFile:
    """A file: `address` is where a copy takes it from, `title` its path where it is laid out."""

    media_type: str
    sha256: str
    size: int
    address: str
    title: str = ""

    @classmethod
    def of(cls, media_type: str, data: bytes) -> CarriedFile:
        """A small one that the list itself holds."""
        address = DATA + base64.b64encode(data).decode()
        digest = hashlib.sha256(data).hexdigest()
        return cls(media_type=media_type, sha256=digest, size=len(data), address=address)

    @property
    def digest(self) -> str:
        return f"sha256:{self.sha256}"

    def descriptor(self) -> dict[str, object]:
        titled = {"annotations": {TITLE: self.title}} if self.title else {}
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size, **titled}


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """An artifact, by the name that makes its place in a mirror, and why it is needed."""

    image: str
    found: Found
    reasons: Sequence[Reason]


def artifact(
    config: CarriedFile,
    files: Iterable[CarriedFile],
    *,
    kind: str = "",
    notes: Mapping[str, str] | None = None,
) -> Found:
    """An OCI manifest (image spec 1.1, "Guidelines for Artifact Usage") of these files, in their order.

    The same files give the same bytes. InputError where two that differ have one title.
    """
    layers: dict[str, CarriedFile] = {}
    for file in files:
        if layers.setdefault(file.title, file).digest != file.digest:
            raise InputError(f"two files that differ would lie at {file.title}")
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        **({"artifactType": kind} if kind else {}),
        "config": config.descriptor(),
        "layers": [one.descriptor() for one in layers.values()],
        **({"annotations": dict(notes)} if notes else {}),
    }
    made = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    blobs = {one.digest: one.size for one in (config, *layers.values())}
    digest, size = digest_of(made.encode()), len(made.encode())
    return Found(
        digest=digest,
        media_type=OCI_MANIFEST,
        size=size + sum(blobs.values()),
        platforms=(Platform(platform="", digest=digest, size=size, blobs=blobs),),
        made=made,
        addresses={one.digest: one.address for one in (config, *layers.values())},
    )
