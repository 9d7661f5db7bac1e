"""The life of `driverforge mirror inventory`: what a mirror holds of a list, and what its nodes run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from driverforge_mirror.holdings.holds import look
from driverforge_mirror.lists.reader import load_mirror_lock
from driverforge_mirror.lists.target import Target
from driverforge_mirror.needs.nodes import Node, read_nodes
from driverforge_mirror.shapes import MirrorInventoryDocument, MirrorLockDocument, MirrorRunning
from driverforge_mirror.yamltext import Digests, Read, read_bytes
from driverforge_oci.client import RegistryClient


def inventory(
    lock_path: Path,
    client: RegistryClient,
    target: Target,
    *,
    deep: bool,
    nodes: Path | None = None,
    read: Read = read_bytes,
) -> MirrorInventoryDocument:
    """What a mirror holds of a lock, and what the nodes of a dump run."""
    digests = Digests(read)
    document = load_mirror_lock(lock_path, digests.read)
    return inventory_of(
        document, digests[str(lock_path)], client, target, deep=deep, nodes=read_nodes(nodes) if nodes else ()
    )


def inventory_of(
    document: MirrorLockDocument,
    digest: str,
    client: RegistryClient,
    target: Target,
    *,
    deep: bool,
    nodes: Sequence[Node] = (),
) -> MirrorInventoryDocument:
    """The same, of a lock that was read; `digest` is the sha256 of the file that it was in."""
    places = target.places(image["image"] for image in document["images"])
    holdings = look(client, document, places, deep=deep)
    held: dict[str, int] = {}
    for one in holdings:
        held |= one.held
    return {
        "schema": 1,
        "lock": digest,
        "mirror": "/".join(filter(None, (target.host, target.path))),
        "deep": deep,
        "images": [one.image for one in holdings],
        "held": dict(sorted(held.items())),
        "runs": _runs(nodes),
    }


def _runs(nodes: Sequence[Node]) -> list[MirrorRunning]:
    alike = Counter((node.os_text, node.kernel.text, node.arch) for node in nodes)
    return [
        {"os": os, "kernel": kernel, "arch": arch, "nodes": count}
        for (os, kernel, arch), count in sorted(alike.items())
    ]
