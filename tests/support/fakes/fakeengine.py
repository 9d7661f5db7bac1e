"""An engine without containers, behind the builder's engine port.

It has what it was told to build, and pushes into a MemoryRegistry.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from driverforge_build.ports import BuildJob, BuiltImage, Layer, StepListener
from driverforge_core.errors import DriverforgeError
from driverforge_oci.client import OCI_MANIFEST
from driverforge_oci.reference import Reference
from support.fakes.memoryregistry import MemoryRegistry


@dataclass(slots=True)
class FakeEngine:
    """`failures` maps a cell to what its build raises, `labels` a cell to the labels of its image.

    `contents` maps an image's name to its files, by their whole path, and a cell to its bare modules.
    `brought` has what was in the folders of each build's contexts.
    """

    registry: MemoryRegistry = field(default_factory=MemoryRegistry)
    failures: Mapping[str, DriverforgeError] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    images: dict[str, BuiltImage] = field(default_factory=dict)
    contents: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    built: list[str] = field(default_factory=list)
    brought: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    pushed: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    makes_images: bool = True

    def check(self) -> str:
        return "a fake engine"

    def network(self) -> str:
        return ""

    def build(self, job: BuildJob, progress: StepListener) -> str:
        progress("userspace 1/1 RUN true")
        with self.lock:
            self.built.append(job.cell)
        if job.cell in self.failures:
            raise self.failures[job.cell]
        if job.output:
            for path, content in self.contents[job.cell].items():
                (job.output / path).parent.mkdir(parents=True, exist_ok=True)
                (job.output / path).write_bytes(content)
            return ""
        self.brought[job.cell] = {
            name: {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}
            for name, folder in job.contexts.items()
        }
        layer = Layer(digest="sha256:" + "0" * 64, size=1000, created_by="COPY")
        self.images[job.reference] = BuiltImage(
            reference=job.reference,
            id=f"sha256:{job.cell}",
            size=1000,
            layers=(layer,),
            labels=self.labels.get(job.cell, {}),
        )
        if not job.remote:
            return ""
        self.pushed.append(job.remote)
        place = Reference.parse(job.remote).with_tag("")
        return store_image(self.registry, place, self.images.pop(job.reference).labels)

    def inspect(self, reference: str) -> BuiltImage | None:
        return self.images.get(reference)

    def push(self, reference: str, remote: str, progress: StepListener) -> None:
        progress(f"pushed {remote}")
        self.pushed.append(remote)
        place = Reference.parse(remote)
        store_image(self.registry, place, self.images[reference].labels)

    def files(self, reference: str, folder: str) -> Mapping[str, bytes] | None:
        found = self.contents.get(reference, {}).items()
        below = {path: content for path, content in found if path.startswith(f"{folder}/")}
        return {path.removeprefix(f"{folder}/"): content for path, content in below.items()} or None


def store_image(
    registry: MemoryRegistry, place: Reference, labels: Mapping[str, str], *, arch: str = "amd64"
) -> str:
    """Put an image with these labels into a registry, also under the place's tag, where it has one.

    Returns its digest.
    """
    config = json.dumps({"architecture": arch, "os": "linux", "config": {"Labels": dict(labels)}}).encode()
    digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
    registry.blobs[place.repository, digest] = config
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": {"mediaType": "c", "digest": digest, "size": len(config)},
            "layers": [],
        }
    ).encode()
    name = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    for key in filter(None, (name, place.tag)):
        registry.manifests[place.repository, key] = (OCI_MANIFEST, manifest)
    return name
