"""The lives of `driverforge mirror`: files in, registries asked, a lock or an inventory out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driverforge_build import resources
from driverforge_build.documents import MirrorInventoryDocument, MirrorLockDocument
from driverforge_build.lock.file import load_lock
from driverforge_build.mirror.ask import find_all, missing_platforms
from driverforge_build.mirror.chart import find_chart
from driverforge_build.mirror.file import load_mirror_lock, lock_document
from driverforge_build.mirror.holds import look
from driverforge_build.mirror.needs import Needs, Settings, needs_of, policies
from driverforge_build.mirror.nodes import read_nodes
from driverforge_build.mirror.target import Target
from driverforge_build.mirror.values import Values
from driverforge_build.mirror.yamltext import read_documents, read_mapping
from driverforge_core.kernel import KernelRelease
from driverforge_oci.client import RegistryClient


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorInputs:
    """What a user names: a chart (a file, a folder, a version), and files."""

    chart: str | None
    values: Sequence[Path] = ()
    policies: Sequence[Path] = ()
    nodes: Path | None = None
    lock: Path | None = None
    kernels: Sequence[str] = ()

    def digests(self) -> dict[str, str]:
        """The sha256 of each file that is read, by its name as given."""
        files = [*self.values, *self.policies, *filter(None, (self.nodes, self.lock))]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def read_settings(inputs: MirrorInputs) -> Settings:
    policy: Values | None = None
    drivers: list[Values] = []
    if inputs.policies:
        policy, drivers = policies([one for path in inputs.policies for one in read_documents(path)])
    return Settings(
        chart=find_chart(inputs.chart, resources.charts()) if inputs.chart else None,
        values=[read_mapping(path) for path in inputs.values],
        policy=policy,
        drivers=drivers,
        nodes=read_nodes(inputs.nodes) if inputs.nodes else (),
        kernels=[KernelRelease.parse(text) for text in inputs.kernels],
        lock=load_lock(inputs.lock) if inputs.lock else None,
    )


def needed(inputs: MirrorInputs) -> Needs:
    """What the cluster needs, no registry asked."""
    return needs_of(read_settings(inputs))


def mirror_lock(
    inputs: MirrorInputs, client: RegistryClient, registries: Mapping[str, str]
) -> MirrorLockDocument:
    """The lock: every needed image by digest, or an error."""
    settings = read_settings(inputs)
    needs = needs_of(settings)
    found = find_all(client, needs, registries)
    needs.warnings += missing_platforms(needs, found)
    return lock_document(settings.chart, inputs.digests(), needs, found)


def inventory(
    lock_path: Path, client: RegistryClient, target: Target, *, deep: bool
) -> MirrorInventoryDocument:
    """What a mirror holds of a lock."""
    document = load_mirror_lock(lock_path)
    places = target.places(image["image"] for image in document["images"])
    holdings = look(client, document, places, deep=deep)
    held: dict[str, int] = {}
    for one in holdings:
        held |= one.held
    return {
        "schema": 1,
        "lock": hashlib.sha256(lock_path.read_bytes()).hexdigest(),
        "mirror": "/".join(filter(None, (target.host, target.path))),
        "deep": deep,
        "images": [one.image for one in holdings],
        "held": dict(sorted(held.items())),
    }
