"""The lives of `driverforge mirror copy`: registry to registry, registry to archive, archive to registry."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from driverforge_build.app.inventory import inventory_of
from driverforge_build.sharedfile import replace_text
from driverforge_core.errors import InputError
from driverforge_mirror.archive.imagelayout import Archive, ArchiveSink, ArchiveSource, sum_name
from driverforge_mirror.archive.packagefolders import LaidOut, configurations, lay_out
from driverforge_mirror.archive.trust import check_volumes, reading, signature_of, signed
from driverforge_mirror.archive.volumes import Volumes
from driverforge_mirror.copying.carriedfiles import FilesAnd
from driverforge_mirror.copying.copier import Copied, Copier, CopyListener, Sink, Source
from driverforge_mirror.copying.registries import BegunUploads, RegistrySink, RegistrySource
from driverforge_mirror.copying.tide import Tide
from driverforge_mirror.lists.loads import Load, loads
from driverforge_mirror.lists.reader import ARCHIVE_LIST, load_archive_list, load_inventory
from driverforge_mirror.lists.target import Target
from driverforge_mirror.needs.nodes import read_nodes
from driverforge_mirror.ports import Files, ListSigner, ListVerifier
from driverforge_mirror.shapes import (
    CopiedImage,
    MirrorArchiveDocument,
    MirrorCopyDocument,
    MirrorInventoryDocument,
    MirrorLockDocument,
    MirrorVolumesDocument,
)
from driverforge_oci.client import RegistryClient
from driverforge_oci.reference import Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrying:
    """What all copies need: `tide` is told of busy registries by whoever made the clients.

    `files` reads the files that no registry has.
    """

    tide: Tide
    listener: CopyListener
    files: Files

    def source(self, client: RegistryClient) -> Source:
        return FilesAnd(registries=RegistrySource(client), files=self.files)

    def copy(
        self, source: Source, sink: Sink, images: Sequence[Load], held_in: Sequence[str] = ()
    ) -> list[Copied]:
        copier = Copier(source=source, sink=sink, tide=self.tide, listener=self.listener, held_in=held_in)
        return copier.run(images)


def copy_between(
    carrying: Carrying,
    lock: MirrorLockDocument,
    source: RegistryClient,
    sink: RegistryClient,
    target: Target,
    *,
    registries: Mapping[str, str],
    begun: Path,
    deep: bool = False,
) -> MirrorCopyDocument:
    """From the registries that have the images to a mirror. `begun` is a file of uploads under way.

    With `deep` an image whose tag is there is asked for its parts too.
    """
    images = loads(lock, _places(lock, target), registries)
    into = RegistrySink(client=sink, begun=BegunUploads(begun), deep=deep)
    with closing(into.begun):
        return _document(carrying.copy(carrying.source(source), into, images))


def save(
    carrying: Carrying,
    lock: MirrorLockDocument,
    source: RegistryClient,
    place: Path,
    *,
    registries: Mapping[str, str],
    volume_size: int = 0,
    inventory: Path | None = None,
    signer: ListSigner | None = None,
) -> MirrorCopyDocument:
    """From registries to the archive PLACE.tar with its list PLACE.list.json.

    `inventory` says what the receiver holds: that is left out. Where an image fails there is no list, and the
    next run goes on. `signer` signs the list, into a file beside it.
    """
    receiver = load_inventory(inventory) if inventory else None
    held = receiver["held"] if receiver else {}
    there = (
        {Reference.parse(image["place"]).repository for image in receiver["images"]} if receiver else set()
    )
    archive = Archive.plan(place, lock, each=volume_size, held=held, held_in=there)
    named = _named(lock)
    sink = ArchiveSink(archive, place.with_name(f"{place.name}.journal"))
    listed = list_of(place)
    try:
        sink.begin(_finished(listed))
        # it speaks of other bytes from here on
        listed.unlink(missing_ok=True)
        results = carrying.copy(carrying.source(source), sink, loads(lock, named, registries))
        if any(result.error for result in results):
            return _document(results)
        document = sink.finish()
        _publish(document, listed, signer)
        sink.place.unlink(missing_ok=True)
        return _document(results, listed=str(listed))
    finally:
        # until here no other run writes this archive
        sink.close()


def _publish(document: MirrorArchiveDocument, listed: Path, signer: ListSigner | None) -> None:
    """Write what stands beside the volumes, the list last: where it is, the archive is whole."""
    for volume in document["volumes"]:
        line = f"{volume['sha256']}  {volume['name']}\n"
        replace_text(listed.parent / sum_name(volume["name"]), line, option="--to-archive")
    text = json.dumps(document, indent=1) + "\n"
    signature_of(listed).unlink(missing_ok=True)
    if signer:
        name = listed.name.removesuffix(ARCHIVE_LIST)
        replace_text(signature_of(listed), signed(signer, text, name), option="--to-archive")
    replace_text(listed, text, option="--to-archive")


def _finished(listed: Path) -> MirrorArchiveDocument | None:
    """The list that an earlier run has made; None where there is none that can be read."""
    try:
        return load_archive_list(listed) if listed.exists() else None
    except InputError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """An archive that has come: its list, and what the list's file is, by sha256."""

    document: MirrorArchiveDocument
    folder: Path
    digest: str


def arrived(place: Path, verifier: ListVerifier | None = None) -> Arrived:
    """Read an archive's list, once; `verifier` has to accept it before."""
    listed, digest = list_of(place), ""

    def read(path: Path) -> bytes:
        nonlocal digest
        data = reading(verifier)(path)
        digest = hashlib.sha256(data).hexdigest()
        return data

    document = load_archive_list(listed, read)
    return Arrived(document=document, folder=listed.parent, digest=digest)


def load(
    carrying: Carrying,
    archive: Arrived,
    sink: RegistryClient,
    target: Target,
    *,
    begun: Path,
    deep: bool = False,
) -> MirrorCopyDocument:
    """From an archive to a mirror; `begun` and `deep` as for `copy_between`."""
    document = archive.document
    volumes = _volumes(archive)
    images = loads(document["lock"], _places(document["lock"], target), {})
    into = RegistrySink(client=sink, begun=BegunUploads(begun), deep=deep)
    with closing(volumes), closing(into.begun):
        source = ArchiveSource(document=document, volumes=volumes)
        return _document(carrying.copy(source, into, images, document.get("held_in", ())))


def unpack(archive: Arrived, folder: Path, url: str) -> list[LaidOut]:
    """The packages of an archive as folders, which nodes reach at `url`."""
    document = archive.document
    with closing(_volumes(archive)) as volumes:
        source = ArchiveSource(document=document, volumes=volumes)
        return _unpacked(source, loads(document["lock"], _named(document["lock"]), {}), folder, url)


def unpack_held(
    lock: MirrorLockDocument, client: RegistryClient, target: Target, folder: Path, url: str
) -> list[LaidOut]:
    """The packages of a mirror as folders."""
    held = [replace(one, source=one.place) for one in loads(lock, _places(lock, target), {})]
    return _unpacked(RegistrySource(client), held, folder, url)


def _unpacked(source: Source, images: Sequence[Load], folder: Path, url: str) -> list[LaidOut]:
    found = lay_out(source, images, folder, url)
    if not found:
        raise InputError(
            "the list has no packages",
            resolution="where nodes compile their driver, `driverforge mirror lock --packages` adds them",
        )
    for name, text in configurations(found):
        replace_text(folder / name, text, option="--out")
    return found


def receipt(
    archive: Arrived, client: RegistryClient, target: Target, nodes: Path | None
) -> MirrorInventoryDocument:
    """What the mirror holds of an archive that was loaded, as its sender wants to know it."""
    return inventory_of(
        archive.document["lock"],
        archive.digest,
        client,
        target,
        deep=True,
        nodes=read_nodes(nodes) if nodes else (),
    )


def checked(
    place: Path, names: Collection[str], verifier: ListVerifier | None = None
) -> MirrorVolumesDocument:
    """The volumes of an archive that are in hand; those of `names`, without any all."""
    archive = arrived(place, verifier)
    return {"schema": 1, "volumes": check_volumes(archive.document, archive.folder, names)}


def list_of(place: Path) -> Path:
    """An archive's list, by the archive's name or by its own."""
    return place if place.name.endswith(ARCHIVE_LIST) else Path(f"{place}{ARCHIVE_LIST}")


def _volumes(archive: Arrived) -> Volumes:
    return Volumes({archive.folder / one["name"]: one["size"] for one in archive.document["volumes"]})


def _named(lock: MirrorLockDocument) -> dict[str, Reference]:
    """The images of a list where their names say that they lie."""
    return {image["image"]: Reference.parse(image["image"]) for image in lock["images"]}


def _places(lock: MirrorLockDocument, target: Target) -> dict[str, Reference]:
    return target.places(image["image"] for image in lock["images"])


def _document(results: Sequence[Copied], *, listed: str = "") -> MirrorCopyDocument:
    images = [_image(result) for result in results]
    return {"schema": 1, "images": images, "sent": sum(image["sent"] for image in images), "list": listed}


def _image(result: Copied) -> CopiedImage:
    return {
        "image": result.load.image,
        "place": str(result.load.place),
        "digest": result.load.digest,
        "state": result.state,
        "sent": result.sent,
        "error": result.error.document() if result.error else None,
    }
