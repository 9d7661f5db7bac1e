"""Reads every byte that a mirror holds of a list: what a disk has damaged no question about digests finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from driverforge_core.errors import DriverforgeError, TemporaryFailure, Unavailable
from driverforge_mirror.copying.copier import Copied, Copier, CopyListener
from driverforge_mirror.copying.stream import PIECE, BlobStream
from driverforge_mirror.copying.tide import Tide
from driverforge_mirror.lists.loads import Load
from driverforge_mirror.shapes import HeldImage, MirrorInventoryDocument
from driverforge_oci.client import Manifest, RegistryClient, WrongBytes
from driverforge_oci.transport import Readable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """The source of a copy that goes nowhere. `wrong`: what was read with an error, by repository and digest.

    Each is read in each repository that has it: not all registries store a blob once.
    """

    client: RegistryClient
    wrong: dict[tuple[str, str], Unavailable] = field(default_factory=dict)

    def manifest(self, load: Load, digest: str) -> Manifest:
        try:
            return self.client.get_manifest(load.place.with_digest(digest))
        except Unavailable as error:
            self.wrong[load.place.name, digest] = error
            # nobody stores it, and the others of its index are to be read, too
            return Manifest(media_type="", digest=digest, data=b"")

    def open_blob(self, load: Load, digest: str, offset: int) -> Readable:
        return self.client.open_blob(load.place, digest, offset)

    def holds(self, load: Load) -> bool:
        return False

    def has_blob(self, load: Load, digest: str) -> bool:
        return False

    def take_blob(self, load: Load, stream: BlobStream, mount_from: str) -> bool:
        try:
            while stream.read(PIECE):
                pass
        except Unavailable as error:
            self.wrong[load.place.name, stream.digest] = error
        return True

    def take_image(self, load: Load, manifests: Sequence[Manifest]) -> None: ...


def read_all(
    client: RegistryClient,
    found: MirrorInventoryDocument,
    loads: Sequence[Load],
    tide: Tide,
    listener: CopyListener,
) -> MirrorInventoryDocument:
    """What was `found` of `loads` by their digests, after all of it was read.

    An image with a part that has other bytes is `damaged`, and that part is not among what is held.
    """
    states = {image["image"]: image for image in found["images"]}
    wanted = [_there(load, states[load.image]) for load in loads if _is_there(states[load.image])]
    reader = _Reader(client=client)
    copier = Copier(source=reader, sink=reader, tide=tide, listener=listener)
    read = {result.load.image: result for result in copier.run(wanted)}
    images = [
        _judged(image, read[image["image"]], reader.wrong) if image["image"] in read else image
        for image in found["images"]
    ]
    damaged = {digest for image in images for digest in image.get("damaged", ())}
    held = {digest: size for digest, size in found["held"].items() if digest not in damaged}
    return {**found, "images": images, "held": held}


def _is_there(image: HeldImage) -> bool:
    return image["state"] in ("held", "moved", "incomplete")


def _there(load: Load, image: HeldImage) -> Load:
    """What the mirror has of it, all of which a registry has by now."""
    missing = image["missing"]
    return replace(
        load,
        source=load.place,
        made=None,
        manifests={digest: size for digest, size in load.manifests.items() if digest not in missing},
        blobs={digest: size for digest, size in load.blobs.items() if digest not in missing},
    )


def _judged(image: HeldImage, read: Copied, wrong: Mapping[tuple[str, str], Unavailable]) -> HeldImage:
    load = read.load
    errors = {
        digest: wrong[load.place.name, digest]
        for digest in (load.digest, *load.manifests, *load.blobs)
        if (load.place.name, digest) in wrong
    }
    damaged = [digest for digest, error in errors.items() if _is_damage(error)]
    if damaged:
        return {**image, "state": "damaged", "damaged": damaged}
    failed: DriverforgeError | None = next(iter(errors.values()), read.error)
    if failed is None:
        return image
    return {**image, "state": "unknown", "reason": f"not all of it could be read: {failed.brief}"}


def _is_damage(error: Unavailable) -> bool:
    """Other bytes, or another number of them; not a registry that is busy, or has broken off."""
    return isinstance(error, WrongBytes) or not isinstance(error, TemporaryFailure)
