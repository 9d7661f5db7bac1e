"""An archive: one OCI image layout as a tar file, cut into volumes, with a list that says what is where.

Where each part lies is known before the first byte comes, for the lock has all sizes. So parts are written in
any order, several at a time, and a run that was killed goes on. The volumes, one after the other, are a tar
file of an OCI image layout (OCI image spec 1.1, image-layout.md): skopeo, crane, regctl and containerd read
it. What reads it here goes by the list alone, opens no path that the tar file names, and compares every byte
with its digest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driverforge_core.errors import InputError
from driverforge_mirror.archive.journal import Journal
from driverforge_mirror.archive.volumes import (
    Span,
    TarPlan,
    Volumes,
    file_sum,
    plan_tar,
    storage,
    volume_sizes,
)
from driverforge_mirror.copying.copier import LeftOut
from driverforge_mirror.copying.stream import BlobStream
from driverforge_mirror.lists.loads import Load, named_entries
from driverforge_mirror.lists.reader import FILE_NAME
from driverforge_mirror.shapes import MirrorArchiveDocument, MirrorContent, MirrorLockDocument
from driverforge_oci import jsontext
from driverforge_oci.client import OCI_INDEX, OCI_MANIFEST, Manifest, WrongBytes, digest_of
from driverforge_oci.transport import Readable

LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
_PIECE = 1 << 20
_MANIFEST_LIMIT = 4 << 20
MARK = 32 << 20
"""Bytes after which a run writes down how far a blob has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """An archive that is to be written: its place, its tar file, and what it leaves out.

    `held_in` are the receiver's repositories, one of which has each blob that is left out.
    """

    lock: MirrorLockDocument
    tar: TarPlan
    index: bytes
    volumes: Mapping[Path, int]
    left_out: Mapping[str, int]
    held_in: Collection[str] = ()

    @classmethod
    def plan(
        cls,
        place: Path,
        lock: MirrorLockDocument,
        *,
        each: int = 0,
        held: Mapping[str, int] | None = None,
        held_in: Collection[str] = (),
    ) -> Archive:
        """PLACE.tar, or volumes of `each` bytes at most. `held`: blobs that the receiver has already.

        InputError for a name that whoever reads the archive would refuse.
        """
        if not FILE_NAME.fullmatch(place.name):
            raise InputError(
                f"{place.name!r} is no name for an archive",
                resolution="begin it with a letter or a digit, and write letters, digits and . _ + - alone: "
                "disk/gpu",
            )
        blobs = {
            digest: size
            for entry in named_entries(lock)
            for one in entry.content["platforms"]
            for digest, size in one["blobs"].items()
        }
        left_out = {digest: size for digest, size in blobs.items() if digest in (held or {})}
        index = _index(lock)
        parts = {blob_name(digest): size for digest, size in manifests_of(lock).items()}
        parts |= {blob_name(digest): size for digest, size in blobs.items() if digest not in left_out}
        tar = plan_tar([("oci-layout", len(LAYOUT)), ("index.json", len(index)), *parts.items()])
        sizes = volume_sizes(tar.size, each)
        names = [f"{place.name}.tar"] if len(sizes) == 1 else _numbered(place.name, len(sizes))
        volumes = {place.parent / name: size for name, size in zip(names, sizes, strict=True)}
        return cls(lock=lock, tar=tar, index=index, volumes=volumes, left_out=left_out, held_in=held_in)

    @property
    def digest(self) -> str:
        """Tells this archive from another one of the same name, wherever its disk is mounted."""
        names = [path.name for path in self.volumes]
        told = [names, self.tar.size, sorted(self.left_out), self.index.decode()]
        return digest_of(json.dumps(told).encode())

    def document(self, sums: Mapping[Path, str]) -> MirrorArchiveDocument:
        """The list, once all is written."""
        return {
            "schema": 1,
            "lock": self.lock,
            "volumes": [
                {"name": path.name, "size": size, "sha256": sums[path]} for path, size in self.volumes.items()
            ],
            "parts": {
                ":".join(name.split("/")[1:]): [span.offset, span.size]
                for name, span in self.tar.spans.items()
                if name.startswith("blobs/")
            },
            "left_out": dict(sorted(self.left_out.items())),
            "held_in": sorted(self.held_in),
        }


def blob_name(digest: str) -> str:
    """Its file in a layout: 'blobs/sha256/…'."""
    return f"blobs/{digest.replace(':', '/')}"


def manifests_of(lock: MirrorLockDocument) -> dict[str, int]:
    """The manifests of all images with their sizes, those of an index before it."""
    found: dict[str, int] = {}
    for entry in named_entries(lock):
        found |= {one["digest"]: one["size"] for one in entry.content["platforms"]}
        found[entry.content["digest"]] = _own_size(entry.content)
    return found


def _own_size(content: MirrorContent) -> int:
    """Bytes of an image's own manifest: the lock has the sum of all parts."""
    parts: dict[str, int] = {}
    for one in content["platforms"]:
        parts |= {**one["blobs"], one["digest"]: one["size"]}
    parts.pop(content["digest"], None)
    return content["size"] - sum(parts.values())


def _index(lock: MirrorLockDocument) -> bytes:
    """The layout's index.json: each image under its whole name, where other tools look for it."""
    manifests: list[dict[str, Any]] = [
        {
            "mediaType": entry.content["media_type"],
            "digest": entry.content["digest"],
            "size": _own_size(entry.content),
            "annotations": {
                "io.containerd.image.name": entry.name,
                "org.opencontainers.image.ref.name": entry.name,
            },
        }
        for entry in named_entries(lock)
    ]
    document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}
    return json.dumps(document, separators=(",", ":")).encode()


def sum_name(volume: str) -> str:
    """The file of a volume's sum: 'gpu.001.sha256', for `cat gpu.tar.*` is to be the tar file."""
    return volume.replace(".tar", "", 1) + ".sha256"


def _numbered(name: str, count: int) -> list[str]:
    width = max(3, len(str(count)))
    return [f"{name}.tar.{number:0{width}d}" for number in range(1, count + 1)]


@dataclass(slots=True)
class ArchiveSink:
    """An archive while it is written. `place` is its journal's, which is for the run after a kill."""

    archive: Archive
    place: Path
    volumes: Volumes = field(init=False)
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.volumes, self.journal = Volumes(self.archive.volumes), Journal(self.place)

    def begin(self, finished: MirrorArchiveDocument | None = None) -> None:
        """Make the volumes, or go on with those of a run that was stopped, or of the list that it `finished`.

        StorageFailed; TemporaryFailure where another run writes it.
        """
        self.journal.open()
        self.journal.recall(self.archive.digest)
        if any(_size(path) != size for path, size in self.archive.volumes.items()):
            self.journal.forget(self.archive.digest)
        sound = self._sound(finished) if finished else set()
        self._clear_away({volume["name"] for volume in finished["volumes"]} if finished else set())
        self.volumes.make()
        # all of it: the files may have the bytes of another archive
        for offset, data in self.archive.tar.frame.items():
            self.volumes.write(offset, data)
        for name, data in (("oci-layout", LAYOUT), ("index.json", self.archive.index)):
            self.volumes.write(self.archive.tar.spans[name].offset, data)
        for digest in sorted(sound - self.journal.done):
            self.journal.complete(digest)

    def _clear_away(self, before: Collection[str]) -> None:
        """Remove volumes that an archive of this name had more: `cat NAME.tar.*` is to be one archive.

        NAME.tar, which may be what a user made of volumes, goes where the list `before` had it.
        """
        numbered = re.compile(re.escape(self.place.stem) + r"\.tar\.[0-9]{3,}")
        alone = {f"{self.place.stem}.tar"} & set(before)
        for path in self.place.parent.iterdir():
            others = path.name in alone or numbered.fullmatch(path.name)
            if others and path not in self.archive.volumes:
                with storage(path):
                    path.unlink()
                    path.with_name(sum_name(path.name)).unlink(missing_ok=True)

    def _sound(self, finished: MirrorArchiveDocument) -> set[str]:
        """The parts of an earlier archive that lie where they are to lie, in volumes with its list's sums.

        Its list may have had other reasons: one that was made anew has, with the day's nodes.
        """
        sums = {self.place.parent / one["name"]: one["sha256"] for one in finished["volumes"]}
        if sums.keys() != self.archive.volumes.keys():
            return set()
        wanted = self.archive.document(sums)["parts"]
        sound, start = list[range](), 0
        for path, size in self.archive.volumes.items():
            if _size(path) == size and file_sum(path) == sums[path]:
                sound.append(range(start, start + size))
            start += size
        return {
            digest
            for digest, span in finished["parts"].items()
            if wanted.get(digest) == span and _covers(sound, span)
        }

    def holds(self, load: Load) -> bool:
        return {load.digest, *load.manifests, *load.blobs} <= self.journal.done | self.archive.left_out.keys()

    def has_blob(self, _load: Load, digest: str) -> bool:
        return digest in self.journal.done or digest in self.archive.left_out

    def take_blob(self, load: Load, stream: BlobStream, _mount_from: str) -> bool:
        # a layer of several repositories is asked for in each, and lies here once
        if self.has_blob(load, stream.digest):
            return False
        span = self.archive.tar.spans[blob_name(stream.digest)]
        mark = min(self.journal.marks.pop(stream.digest, 0), max(0, span.size - 1))
        if mark:
            stream.go_on_after(_Stored(self.volumes, Span(offset=span.offset, size=mark)), mark)
        try:
            self._write(span, stream)
        except WrongBytes:
            if not mark:
                raise
            # what the mark stands for may be wrong: a machine that went down had it in its memory alone
            stream.go_to(0)
            self._write(span, stream)
        self._complete(span, stream.digest)
        return True

    def _write(self, span: Span, stream: BlobStream) -> None:
        marked = stream.offset
        while piece := stream.read(_PIECE):
            self.volumes.write(span.offset + stream.offset - len(piece), piece)
            if stream.offset - marked >= MARK:
                marked = stream.offset
                self.journal.mark(stream.digest, marked)

    def take_image(self, load: Load, manifests: Sequence[Manifest]) -> None:
        for manifest in manifests:
            span = self.archive.tar.spans[blob_name(manifest.digest)]
            if len(manifest.data) != span.size:
                raise InputError(
                    f"the manifest {manifest.digest} of {load.image} has {len(manifest.data)} bytes, and "
                    f"{span.size} in the list",
                    resolution="make the list anew with `driverforge mirror lock`",
                )
            self.volumes.write(span.offset, manifest.data)
            self._complete(span, manifest.digest)

    def _complete(self, span: Span, digest: str) -> None:
        # the journal is believed after a power cut too
        self.volumes.flush(span)
        self.journal.complete(digest)

    def finish(self) -> MirrorArchiveDocument:
        """Bring all to the disk, and read it once more for the volumes' sums. The list."""
        self.volumes.flush(Span(offset=0, size=self.volumes.size))
        return self.archive.document({path: file_sum(path) for path in self.archive.volumes})

    def close(self) -> None:
        self.volumes.close()
        self.journal.close()


def _size(path: Path) -> int:
    """-1 where there is no such file."""
    with storage(path):
        return path.stat().st_size if path.exists() else -1


def _covers(sound: Sequence[range], span: Sequence[int]) -> bool:
    """Whether all bytes from `span`'s first number on, as many as its second, lie in some of the ranges."""
    offset, size = span
    return size == sum(max(0, min(one.stop, offset + size) - max(one.start, offset)) for one in sound)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A span of the volumes as a stream; `begun` counts what was read."""

    volumes: Volumes
    span: Span
    begun: list[int] = field(default_factory=lambda: [0])

    def read(self, size: int, /) -> bytes:
        offset = self.begun[0]
        piece = self.volumes.read(self.span.offset + offset, min(size, self.span.size - offset))
        self.begun[0] += len(piece)
        return piece

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSource:
    """An archive that has come. Nothing in it is believed that has another digest than the list says."""

    document: MirrorArchiveDocument
    volumes: Volumes

    def manifest(self, load: Load, digest: str) -> Manifest:
        span = self._span(digest)
        if span.size > _MANIFEST_LIMIT:
            raise InputError(
                f"the archive's manifest {digest} is too large to be one", resolution="make the archive anew"
            )
        data = self.volumes.read(span.offset, span.size)
        if digest_of(data, like=digest) != digest:
            raise InputError(
                f"the archive's bytes of {load.image} are not those of their digest",
                details=[f"manifest {digest}"],
                resolution="check the volumes: sha256sum -c *.sha256",
            )
        return Manifest(media_type=_media_type(data), digest=digest, data=data)

    def open_blob(self, _load: Load, digest: str, offset: int) -> Readable:
        span = self._span(digest)
        return _Stored(self.volumes, Span(offset=span.offset + offset, size=span.size - offset))

    def _span(self, digest: str) -> Span:
        if (found := self.document["parts"].get(digest)) is not None:
            return Span(offset=found[0], size=found[1])
        if digest in self.document["left_out"]:
            raise LeftOut(
                f"the archive leaves out {digest}, for the receiver was said to have it, and has not",
                resolution="make the archive anew without that inventory, or with one of now",
            )
        raise InputError(f"the archive has no {digest}", resolution="make the archive anew")


def _media_type(data: bytes) -> str:
    """A manifest's: where none is stated it is OCI's (image spec 1.1, "mediaType")."""
    document = jsontext.parse(data)
    if not isinstance(document, dict):
        raise InputError("a manifest of the archive is no JSON object", resolution="make the archive anew")
    stated = document.get("mediaType")
    return (
        stated
        if isinstance(stated, str) and stated
        else OCI_INDEX
        if "manifests" in document
        else OCI_MANIFEST
    )
