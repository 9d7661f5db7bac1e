"""A vendor's registry, a mirror, and a list of what is to be carried; copies in this process or another."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from driverforge_build.cli import run as driverforge
from driverforge_mirror.contents.ask import find
from driverforge_mirror.contents.listtext import image_document
from driverforge_mirror.shapes import MirrorLockDocument
from driverforge_oci.client import OCI_MANIFEST, digest_of
from driverforge_oci.reference import Reference
from support.fakes.hostileproxy import Proxy, hostile
from support.machines import registry
from support.samples.vendorregistry import client

_ROOT = Path(__file__).parents[3]
LARGE = bytes(range(256)) * (160 << 10)  # 40 MB: three parts of an upload


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """`vendor` and `mirror` are HOST:PORT; `home` has the list, the cache of copies, and archives."""

    home: Path
    vendor: str
    mirror: str

    @property
    def listed(self) -> list[str]:
        return ["--mirror-lock", str(self.home / "mirror.lock.json")]

    @property
    def archive(self) -> Path:
        return self.home / "out/gpu"

    def list_images(self, names: Sequence[str]) -> None:
        (self.home / "mirror.lock.json").write_text(json.dumps(lock_of(names)))

    def copy(self, *given: str) -> int:
        return driverforge(["mirror", "copy", *self.listed, *given])

    def held(self, path: str) -> int:
        """The status of `mirror verify --deep`."""
        return driverforge(["mirror", "verify", "--deep", "--to", f"{self.mirror}/{path}", *self.listed])

    def argv(self) -> list[str]:
        """A copy as a process, which ends by SIGINT also where this one ignores it."""
        program = (
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
            "from driverforge_build.cli import main; main()"
        )
        return [sys.executable, "-c", program, "mirror", "copy", *self.listed]

    @property
    def environment(self) -> dict[str, str]:
        paths = os.pathsep.join(str(_ROOT / name) for name in ("builder", "entrypoints"))
        return {**os.environ, "PYTHONPATH": paths}

    def start(self, *given: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.argv(), *given],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Troubled:
    """A site whose registries stand behind proxies."""

    site: Site
    vendor: Proxy
    mirror: Proxy

    @property
    def to(self) -> list[str]:
        return ["--to", f"{self.site.mirror}/kse"]

    @property
    def down(self) -> int:
        return sum(self.vendor.down.values())

    def begin_anew(self) -> None:
        self.vendor.begin_anew()
        self.mirror.begin_anew()


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards, on a disk and not in memory."""
    made = Path(tempfile.mkdtemp(prefix="bench-", dir="/var/tmp"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


@contextmanager
def troubled_site(vendor: Proxy, program: str | Path = "docker-registry") -> Iterator[Troubled]:
    """With a mirror that is empty, of this `program`."""
    vendor.begin_anew()
    with (
        scratch() as home,
        registry.serve(home / "mirror", program=program) as server,
        hostile(server.address) as mirror,
    ):
        site = Site(home=home, vendor=vendor.address, mirror=mirror.address)
        yield Troubled(site=site, vendor=vendor, mirror=mirror)


def some(seed: str, size: int) -> bytes:
    """Bytes that are always the same, and unlike those of another seed."""
    return hashlib.shake_128(seed.encode()).digest(1 << 20) * (size >> 20)


def put_large(place: Reference, *layers: bytes) -> str:
    """An image with these layers; its name."""
    configuration = json.dumps({"architecture": "amd64", "os": "linux"}).encode()
    parts = []
    for data in (configuration, *layers):
        client().put_blob(place, data, digest=digest_of(data), size=len(data))
        kind = "application/vnd.oci.image.config.v1+json" if data is configuration else "application/x"
        parts.append({"mediaType": kind, "digest": digest_of(data), "size": len(data)})
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": parts[0], "layers": parts[1:]}
    client().put_manifest(place, json.dumps(document).encode(), OCI_MANIFEST)
    return str(place)


def lock_of(names: Sequence[str], platforms: Sequence[str] = ()) -> MirrorLockDocument:
    """A list of these images, found as `mirror lock` finds them."""
    images = []
    for name in names:
        place = Reference.parse(name)
        found = find(client(), place.with_digest(client().head_manifest(place).digest), platforms)
        images.append(image_document(name, [], found))
    return {"schema": 1, "chart": None, "inputs": {}, "images": images, "left_out": [], "warnings": []}
