"""The lives of `driverforge mirror`: files in, registries asked, a lock or an inventory out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driverforge_build import resources
from driverforge_build.lock.file import load_lock
from driverforge_build.nodepackages import Repositories, carried_packages
from driverforge_core.kernel import KernelRelease
from driverforge_mirror.charts.chart import find_chart, read_chart
from driverforge_mirror.charts.values import Values
from driverforge_mirror.contents.ask import check_platforms, find_all, missing_platforms
from driverforge_mirror.contents.chartarchive import ChartArchive, carried_chart, chart_reason, check_unmoved
from driverforge_mirror.contents.listtext import lock_document
from driverforge_mirror.needs.drivers import none_known
from driverforge_mirror.needs.needed import ClusterSettings, Needs, needs_of, policies
from driverforge_mirror.needs.nodes import read_nodes
from driverforge_mirror.shapes import MirrorLockDocument
from driverforge_mirror.yamltext import Digests, Read, read_bytes, read_documents, read_mapping
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


def read_settings(inputs: MirrorInputs, read: Read = read_bytes) -> ClusterSettings:
    policy: Values | None = None
    drivers: list[Values] = []
    if inputs.policies:
        policy, drivers = policies([one for path in inputs.policies for one in read_documents(path, read)])
    archive = inputs.archive
    return ClusterSettings(
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
        known=load_lock(inputs.lock, read=read).kernels_of if inputs.lock else none_known,
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
