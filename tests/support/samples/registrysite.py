"""A site with a matrix, a lock and a registry that has images of two architectures, a few bytes each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from driverforge_build.advice import Given
from driverforge_build.fetch.web import registry_transport
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import load_matrix
from driverforge_build.plan.rows import all_cells
from driverforge_build.render.bake import immutable_tag_of
from driverforge_build.render.context import BuildContext, driver_contexts
from driverforge_oci.client import OCI_MANIFEST, RegistryClient
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from support.machines import registry
from support.samples.locks import kernel, sample_driver, target
from support.samples.sampledebian import MATRIX, write_matrix

KERNEL = "6.1.0-50-generic"
AMD64, ARM64 = (f"debian12-{arch}-535.261.03-{KERNEL}" for arch in ("amd64", "arm64"))
_NO_PROBES = MATRIX[: MATRIX.index("probes:")] + MATRIX[MATRIX.index("systems:\n") :]
TWO_ARCHS = _NO_PROBES.replace("archs: [amd64]\n", "archs: [amd64, arm64]\n").replace(
    "{amd64: [cloud-amd64]}", "{amd64: [generic], arm64: [generic]}"
)


@dataclass(frozen=True, slots=True)
class RegistrySite:
    folder: Path
    registry: str

    @property
    def client(self) -> RegistryClient:
        return RegistryClient(Session(registry_transport({}, lambda *_: None)))

    @property
    def given(self) -> list[str]:
        files = ["--matrix", str(self.folder / "site.yaml"), "--lock", str(self.folder / "site.lock.json")]
        return [*files, "--registry", self.registry, "--select", f"*-{KERNEL}"]

    def context(self, key: str) -> BuildContext:
        matrix, lock = load_matrix(self.folder / "site.yaml"), two_archs_lock()
        cells = [cell for cell in all_cells(matrix, lock) if cell.key == key]
        (made,) = driver_contexts(cells, lock, given=Given())
        return made

    def store(self, key: str, *, driver: str = "", tag: str = "") -> str:
        """Put a cell's image into the registry, as a push leaves it; returns its digest."""
        made = self.context(key)
        cell = key.replace("535.261.03", driver) if driver else key
        place = Reference.parse(f"{self.registry}/driver:{tag or immutable_tag_of(made)}")
        return store(self.client, place, made, cell=cell)[0]


def store(client: RegistryClient, place: Reference, made: BuildContext, *, cell: str = "") -> tuple[str, str]:
    """Put an image without layers into a registry, labelled as made from a context.

    Returns its digest and that of its configuration.
    """
    labels = {"io.driverforge.inputs": made.inputs, "io.driverforge.cell": cell or made.image.id}
    document = {"architecture": made.image.arch, "os": "linux", "config": {"Labels": labels}}
    config = json.dumps(document).encode()
    digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
    client.put_blob(place, config, digest=digest, size=len(config))
    described = {"mediaType": "application/json", "digest": digest, "size": len(config)}
    manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described, "layers": []}
    return client.put_manifest(place, json.dumps(manifest).encode(), OCI_MANIFEST), digest


def two_archs_lock() -> Lock:
    drivers = {"535.261.03": sample_driver()}
    made = {arch: target(kernel(KERNEL), arch=arch, drivers=drivers) for arch in ("amd64", "arm64")}
    return Lock(targets={f"debian12-{arch}": one for arch, one in made.items()})


def site_at(folder: Path, address: str) -> RegistrySite:
    """A site whose registry answers at an address."""
    write_matrix(folder, TWO_ARCHS)
    (folder / "site.lock.json").write_text(dump_lock(two_archs_lock()))
    return RegistrySite(folder, f"{address}/site")


@contextmanager
def registry_site(folder: Path) -> Iterator[RegistrySite]:
    """A site whose registry is Debian's docker-registry. Raises Unavailable without it."""
    with registry.serve(folder / "registry") as server:
        yield site_at(folder, server.address)
