"""The lives of `driverforge mirror`: files in, registries asked, a lock or an inventory out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driverforge_build import resources
from driverforge_build.documents import MirrorInventoryDocument, MirrorLockDocument, MirrorRunning
from driverforge_build.lock.file import load_lock
from driverforge_build.mirror.ask import check_platforms, find_all, missing_platforms
from driverforge_build.mirror.chart import find_chart, read_chart
from driverforge_build.mirror.chartarchive import ChartArchive, carried_chart, chart_reason, check_unmoved
from driverforge_build.mirror.file import load_mirror_lock, lock_document
from driverforge_build.mirror.holds import look
from driverforge_build.mirror.needs import Needs, Settings, needs_of, policies
from driverforge_build.mirror.nodes import Node, read_nodes
from driverforge_build.mirror.packages import Repositories, carried_packages
from driverforge_build.mirror.target import Target
from driverforge_build.mirror.values import Values
from driverforge_build.mirror.yamltext import Read, read_bytes, read_documents, read_mapping
from driverforge_core.kernel import KernelRelease
from driverforge_oci.client import RegistryClient


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorInputs:
    """What a user names: a chart (a folder, a version; an `archive` where there is one), and files."""

    chart: str | None
    archive: ChartArchive | None = None
    values: Sequence[Path] = ()
    policies: Sequence[Path] = ()
    nodes: Path | None = None
    lock: Path | None = None
    kernels: Sequence[str] = ()
    platforms: Sequence[str] = ()


class Digests(dict[str, str]):
    """The sha256 of each file that was read, by its name as given."""

    def __init__(self, read: Read = read_bytes) -> None:
        super().__init__()
        self._read = read

    def read(self, path: Path) -> bytes:
        data = self._read(path)
        self[str(path)] = hashlib.sha256(data).hexdigest()
        return data


def read_settings(inputs: MirrorInputs, read: Read = read_bytes) -> Settings:
    policy: Values | None = None
    drivers: list[Values] = []
    if inputs.policies:
        policy, drivers = policies([one for path in inputs.policies for one in read_documents(path, read)])
    archive = inputs.archive
    return Settings(
        chart=read_chart(archive.data, archive.source)
        if archive
        else find_chart(inputs.chart, resources.charts())
        if inputs.chart
        else None,
        values=[read_mapping(path, read) for path in inputs.values],
        policy=policy,
        drivers=drivers,
        nodes=read_nodes(inputs.nodes, read) if inputs.nodes else (),
        kernels=[KernelRelease.parse(text) for text in inputs.kernels],
        lock=load_lock(inputs.lock, read=read) if inputs.lock else None,
    )


def needed(inputs: MirrorInputs, read: Read = read_bytes) -> Needs:
    """What the cluster needs, no registry asked."""
    return needs_of(read_settings(inputs, read))


def mirror_lock(
    inputs: MirrorInputs,
    client: RegistryClient,
    registries: Mapping[str, str],
    repositories: Repositories | None = None,
    read: Read = read_bytes,
) -> MirrorLockDocument:
    """The lock: every needed image by digest, or an error. With `repositories` packages are in it too."""
    digests = Digests(read)
    settings = read_settings(inputs, digests.read)
    needs = needs_of(settings)
    archive = inputs.archive
    if archive and archive.image:
        needs.images.setdefault(archive.image, []).append(chart_reason(archive))
    check_platforms(needs, inputs.platforms)
    found = find_all(client, needs, registries, inputs.platforms)
    if archive and archive.image:
        check_unmoved(archive, found[archive.image])
    needs.warnings += missing_platforms(needs, found, inputs.platforms)
    if needs.compiling and repositories is None:
        needs.warnings.append(
            "nodes that compile their driver fetch kernel headers: --packages takes them along, where the "
            "closed side has no mirror of the distribution"
        )
    carried = [carried_chart(archive)] if archive and archive.address else []
    carried += carried_packages(needs, settings.kernels, repositories) if repositories else []
    for one in carried:
        needs.images[one.image], found[one.image] = list(one.reasons), one.found
    return lock_document(settings.chart, digests, needs, found)


def inventory(
    lock_path: Path, client: RegistryClient, target: Target, *, deep: bool, nodes: Path | None = None
) -> MirrorInventoryDocument:
    """What a mirror holds of a lock, and what the nodes of a dump run."""
    digests = Digests()
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
