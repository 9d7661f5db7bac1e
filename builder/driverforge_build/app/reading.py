"""The life of `driverforge mirror verify --deep`: a mirror is asked for each part, and each is read."""

from __future__ import annotations

from pathlib import Path

from driverforge_build.app.inventory import inventory_of
from driverforge_mirror.copying.copier import CopyListener
from driverforge_mirror.copying.tide import Tide
from driverforge_mirror.holdings.bytewise import read_all
from driverforge_mirror.lists.loads import loads
from driverforge_mirror.lists.reader import load_mirror_lock
from driverforge_mirror.lists.target import Target
from driverforge_mirror.shapes import MirrorInventoryDocument
from driverforge_mirror.yamltext import Digests, Read, read_bytes
from driverforge_oci.client import RegistryClient


def read_mirror(
    lock_path: Path,
    client: RegistryClient,
    target: Target,
    tide: Tide,
    listener: CopyListener,
    *,
    read: Read = read_bytes,
) -> MirrorInventoryDocument:
    """What a mirror holds of a lock, by digest and by the bytes."""
    digests = Digests(read)
    lock = load_mirror_lock(lock_path, digests.read)
    found = inventory_of(lock, digests[str(lock_path)], client, target, deep=True)
    places = target.places(image["image"] for image in lock["images"])
    return read_all(client, found, loads(lock, places, {}), tide, listener)
