"""A vendor's registry with the images of NVIDIA's chart v26.7.0, and an empty one that becomes its mirror."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from driverforge_build import resources
from driverforge_build.cli import run
from driverforge_mirror.lists.target import in_registry
from driverforge_oci.reference import Reference
from support.machines import registry
from support.samples.vendorregistry import put_image

HOSTS = ("nvcr.io", "registry.k8s.io")
BESIDE_THE_DRIVER = (
    "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
    "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0",
    "nvcr.io/nvidia/gpu-operator:v26.7.0",
    "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
    "nvcr.io/nvidia/k8s/container-toolkit:v1.20.0",
    "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless",
    "registry.k8s.io/nfd/node-feature-discovery:v0.19.0",
)
"""What NVIDIA's chart v26.7.0 runs by its own values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSite:
    """`vendor` is HOST:PORT, `mirror` as --to takes it; `folder` has nodes.json."""

    folder: Path
    vendor: str
    mirror: str

    @property
    def lock_file(self) -> Path:
        return self.folder / "mirror.lock.json"

    @property
    def archive(self) -> str:
        return str(self.folder / "carried/gpu")

    def document(self) -> Any:
        return json.loads(self.lock_file.read_text())

    def call(self, *words: str) -> int:
        cache = ("--cache-dir", str(self.folder / "cache")) if words[0] in ("lock", "copy") else ()
        return run(["mirror", *words, *cache, "--mirror-lock", str(self.lock_file)])

    @property
    def registries(self) -> list[str]:
        return [word for host in HOSTS for word in ("--registry", f"{host}={self.vendor}/{host}")]

    def lock(self, *words: str, chart: str = "v26.7.0") -> int:
        given = ("--chart", chart, "--nodes", str(self.folder / "nodes.json"), *self.registries)
        return self.call("lock", *given, *words)

    def save(self, *words: str) -> int:
        return self.call("copy", "--to-archive", self.archive, *self.registries, *words)

    def load(self, *words: str) -> int:
        return self.call("copy", "--from-archive", self.archive, "--to", self.mirror, *words)


@contextmanager
def chart_site(folder: Path, *further: str) -> Iterator[tuple[str, str]]:
    """Address of the vendor's registry and of the mirror, while the block runs.

    `further` images are at the vendor's too.
    """
    with registry.serve(folder / "vendor") as vendor, registry.serve(folder / "mirror") as mirror:
        names = {host: f"{vendor.address}/{host}" for host in HOSTS}
        for image in (*BESIDE_THE_DRIVER, *further):
            put_image(in_registry(Reference.parse(image), names), archs=("amd64",))
        yield vendor.address, f"http://{mirror.address}/site"


def write_chart(folder: Path) -> Path:
    """NVIDIA's chart as `helm pull` brings it, as far as it is known here."""
    known = yaml.safe_load(resources.charts()["gpu-operator-v26.7.0"].read_text())
    about = {"apiVersion": "v2", "name": "gpu-operator", "version": "v26.7.0", "appVersion": "v26.7.0"}
    path = folder / "gpu-operator-v26.7.0.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, document in (("Chart.yaml", about), ("values.yaml", known["values"])):
            data = yaml.safe_dump(document).encode()
            entry = tarfile.TarInfo(f"gpu-operator/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path
