"""Artifacts that are made here of files which no registry has, so that a mirror and an archive carry them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from driverforge_build.mirror.ask import Found, Platform
from driverforge_build.mirror.copying import Source
from driverforge_build.mirror.loads import Load
from driverforge_build.mirror.needs import Reason
from driverforge_build.ports import Blob, Downloads
from driverforge_core.errors import InputError, Unavailable
from driverforge_oci.client import OCI_MANIFEST, Manifest, digest_of
from driverforge_oci.transport import Readable

TITLE = "org.opencontainers.image.title"
_DATA = "data:;base64,"


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
        address = _DATA + base64.b64encode(data).decode()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesAnd:
    """The source of a copy: files of carried artifacts from their addresses, all else from `registries`."""

    registries: Source
    downloads: Downloads
    folder: Path = field(default_factory=Path)

    def manifest(self, load: Load, digest: str) -> Manifest:
        return self.registries.manifest(load, digest)

    def open_blob(self, load: Load, digest: str, offset: int) -> Readable:
        """Raises Unavailable for a file that is gone, or is another one by now."""
        address = load.addresses.get(digest)
        if address is None:
            return self.registries.open_blob(load, digest, offset)
        if address.startswith(_DATA):
            return io.BytesIO(_inline(address)[offset:])
        url = address if "://" in address else (self.folder / address).absolute().as_uri()
        blob = Blob(urls=(url,), sha256=digest.removeprefix("sha256:"), size=load.blobs[digest])
        try:
            path = self.downloads.blob(blob)
        except Unavailable as error:
            raise type(error)(
                f"{load.image}: {error.brief}",
                details=error.details,
                resolution="what was listed is not there any more: make the list anew with `driverforge "
                "mirror lock`, and copy from the same machine, whose cache keeps indexes",
            ) from error
        file = path.open("rb")
        file.seek(offset)
        return file


def _inline(address: str) -> bytes:
    try:
        return base64.b64decode(address.removeprefix(_DATA), validate=True)
    except binascii.Error:
        raise InputError(
            "the list has a file that is no base64",
            resolution="make the list anew with `driverforge mirror lock`",
        ) from None
