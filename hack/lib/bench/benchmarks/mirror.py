"""mirror: `driverforge mirror copy` between two registries of this machine, against curl and skopeo."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cpu import peak_of
from bench.result import Measure, Series
from bench.workshop import Workshop
from driverforge_mirror.contents.ask import find
from driverforge_mirror.contents.listtext import image_document
from driverforge_mirror.shapes import MirrorLockDocument
from driverforge_oci.client import OCI_MANIFEST
from driverforge_oci.reference import Reference
from support import process
from support.machines import registry
from support.samples.vendorregistry import client

MB = 1_000_000
_SMALL = 16_000  # bytes; what stands for a MB in the smallest run, whose volumes must be 1 MB at least
_CONFIGURATION = "application/vnd.oci.image.config.v1+json"
# units of each layer: what a GPU operator's mirror is made of, few large blobs and many small ones
_IMAGES = ((400, 100, 1), (300, 150, 1), (200, 100, 50, 1))
_SHARED = ((90, 6, 2), 3)
"""Layers that the drivers for two kernels share, and the one that each has of its own."""
_AT_ONCE = 4
_PLAIN = r"""
place=$(curl -sfi -X POST "http://$2/v2/$3/blobs/uploads/" | sed -n 's/^Location: \(.*\)\r$/\1/Ip')
curl -sf "http://$1/v2/$3/blobs/$4" |
    curl -sf -o /dev/null -X PUT -H 'Content-Type: application/octet-stream' -T - "$place&digest=$4"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A vendor's registry and a folder for all that is made of it.

    `unit` is the size in bytes of which layers are made: a MB, unless a run shall be short.
    """

    home: Path
    vendor: str
    unit: int = MB

    def put(self, name: str, sizes: Sequence[int], *, seed: str = "") -> str:
        """An image of layers of so many units, which do not compress; a layer is its name's and number's."""
        place = Reference.parse(f"{self.vendor}/{name}")
        parts = [self._blob(place, json.dumps({"architecture": "amd64", "os": "linux", "of": name}).encode())]
        parts += [
            self.layer(place, f"{seed or name} {number} {size}", size) for number, size in enumerate(sizes)
        ]
        parts[0]["mediaType"] = _CONFIGURATION
        document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": parts[0], "layers": parts[1:]}
        client().put_manifest(place, json.dumps(document).encode(), OCI_MANIFEST)
        return str(place)

    def _blob(self, place: Reference, data: bytes) -> dict[str, object]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        client().put_blob(place, data, digest=digest, size=len(data))
        return {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": len(data)}

    def layer(self, place: Reference, name: str, size: int) -> dict[str, object]:
        path, hasher = self.home / "layer", hashlib.sha256()
        with path.open("wb") as file:
            for number in range(size):
                piece = hashlib.shake_256(f"{name} {number}".encode()).digest(4096) * (self.unit // 4096 + 1)
                hasher.update(piece[: self.unit])
                file.write(piece[: self.unit])
        digest = f"sha256:{hasher.hexdigest()}"
        client().put_blob(place, lambda: path.open("rb"), digest=digest, size=size * self.unit)
        path.unlink()
        return {
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": digest,
            "size": size * self.unit,
        }

    def lock(self, name: str, images: Sequence[str]) -> Path:
        """A list of images, as `mirror lock` writes it."""
        path = self.home / name
        lock: MirrorLockDocument = {
            "schema": 1,
            "chart": None,
            "inputs": {},
            "images": [image_document(image, [], find(client(), _pinned(image))) for image in images],
            "left_out": [],
            "warnings": [],
        }
        path.write_text(json.dumps(lock))
        return path

    @contextmanager
    def mirror(self) -> Iterator[registry.Registry]:
        """An empty one."""
        folder = Path(tempfile.mkdtemp(prefix="mirror-", dir=self.home))
        try:
            with registry.serve(folder) as server:
                yield server
        finally:
            shutil.rmtree(folder)


def run(workshop: Workshop) -> Iterator[Measure]:
    process.require("docker-registry", "curl", "setpriv")
    shared = Path("/dev/shm")
    roomy = shared.is_dir() and shutil.disk_usage(shared).free > 6e9
    home = Path(tempfile.mkdtemp(prefix="driverforge-bench-", dir=shared if roomy else "/var/tmp"))
    try:
        with registry.serve(home / "vendor") as vendor:
            site = Site(home=home, vendor=vendor.address, unit=_SMALL if workshop.smallest else MB)
            os.environ["XDG_CACHE_HOME"] = str(home / "cache")
            images = [site.put(f"nvidia/image-{number}:1", sizes) for number, sizes in enumerate(_IMAGES)]
            lock = site.lock("mirror.lock.json", images)
            yield from _throughput(workshop, site, lock)
            yield _requests(site, lock)
            yield _volumes(site, lock)
            yield _delta(site)
            yield _memory(site)
    finally:
        shutil.rmtree(home)


def _throughput(workshop: Workshop, site: Site, lock: Path) -> Iterator[Measure]:
    blobs = [(repository, digest) for repository, digest in _blobs(lock)]
    ways: dict[str, Callable[[str], None]] = {
        "mirror copy": lambda mirror: _copy(lock, "--to", f"http://{mirror}"),
        "curl, one blob after the other": lambda mirror: _curl(site.vendor, mirror, blobs, at_once=1),
        f"curl, {_AT_ONCE} at once": lambda mirror: _curl(site.vendor, mirror, blobs, at_once=_AT_ONCE),
    }
    if not process.missing("skopeo"):
        ways["skopeo sync --all"] = lambda mirror: _skopeo(site, lock, mirror)
    runs = workshop.runs or 5
    total = sum(sum(sizes) for sizes in _IMAGES)
    workshop.say(f"{runs} times {total * site.unit / MB:g} MB in {len(blobs)} blobs: {', '.join(ways)}")
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, way in ways.items():
            with site.mirror() as server:
                began = time.monotonic()
                way(server.address)
                samples[name].append(time.monotonic() - began)
    ours, *others = (Series(of=name, samples=tuple(found)) for name, found in samples.items())
    for other in others:
        yield Measure(what=f"against {other.of}", unit="s", ours=ours, reference=other)


def _requests(site: Site, lock: Path) -> Measure:
    """A run that has nothing to do."""
    with site.mirror() as server:
        _copy(lock, "--to", f"http://{server.address}")
        before = _answered(server.log)
        _copy(lock, "--to", f"http://{server.address}")
        asked = _answered(server.log) - before
    return Measure(
        what="requests with nothing to do",
        unit="requests",
        ours=Series(of="mirror copy", samples=(float(asked),)),
        reference=Series(of="tags", samples=(float(len(_IMAGES)),)),
    )


def _volumes(site: Site, lock: Path) -> Measure:
    _copy(lock, "--to-archive", str(site.home / "out/gpu"), "--volume-size", str(64 * site.unit))
    files = sum(path.stat().st_size for path in (site.home / "out").iterdir())
    shutil.rmtree(site.home / "out")
    content = sum(image["size"] for image in json.loads(lock.read_text())["images"])
    return Measure(
        what="an archive in volumes",
        unit="bytes",
        ours=Series(of="volumes, list and sums", samples=(float(files),)),
        reference=Series(of="blobs and manifests", samples=(float(content),)),
    )


def _delta(site: Site) -> Measure:
    """After a kernel update: all layers of the driver's image are there but the last."""
    layers, own = _SHARED
    images = [site.put(f"nvidia/driver:{kernel}", (*layers, own), seed="driver") for kernel in ("1",)]
    with site.mirror() as server:
        to = ("--to", f"http://{server.address}")
        first = site.lock("first.json", images)
        _copy(first, *to)
        (site.home / "held.json").write_text(_driverforge("inventory", *to, "--mirror-lock", str(first)))
        images.append(_next_kernel(site, images[0], own))
        words = ("--to-archive", str(site.home / "out/gpu"), "--inventory", str(site.home / "held.json"))
        _copy(site.lock("second.json", images), *words)
        files = sum(path.stat().st_size for path in (site.home / "out").iterdir())
    shutil.rmtree(site.home / "out")
    return Measure(
        what="delta after a kernel update",
        unit="bytes",
        ours=Series(of="archive, list and sums", samples=(float(files),)),
        reference=Series(of="the new layer", samples=(float(own * site.unit),)),
    )


def _next_kernel(site: Site, image: str, own: int) -> str:
    """The driver for the next kernel: another last layer."""
    place = Reference.parse(image)
    manifest = client().get_manifest(place)
    layers = [*manifest.document["layers"][:-1], site.layer(place, "next kernel", own)]
    document = {**manifest.document, "layers": layers}
    client().put_manifest(place.with_tag("2"), json.dumps(document).encode(), OCI_MANIFEST)
    return str(place.with_tag("2"))


def _memory(site: Site) -> Measure:
    peaks = []
    for size in (100, 1000):
        lock = site.lock(f"{size}.json", [site.put(f"nvidia/large-{size}:1", (size,))])
        with site.mirror() as server:
            peaks.append(
                peak_of(_words("copy", "--to", f"http://{server.address}", "--mirror-lock", str(lock)))
            )
    return Measure(
        what="memory",
        unit="bytes",
        ours=Series(of="a blob of 1 GB", samples=(peaks[1],)),
        reference=Series(of="one of 100 MB", samples=(peaks[0],)),
    )


def _words(*words: str) -> list[str]:
    return [sys.executable, "-c", "from driverforge_build.cli import main; main()", "mirror", *words]


def _driverforge(*words: str) -> str:
    return process.run(*_words(*words)).stdout


def _copy(lock: Path, *words: str) -> None:
    _driverforge("copy", "--mirror-lock", str(lock), *words)


def _curl(vendor: str, mirror: str, blobs: Sequence[tuple[str, str]], *, at_once: int) -> None:
    lines = "".join(f"{vendor} {mirror} {repository} {digest}\n" for repository, digest in blobs)
    words = ["xargs", "-L", "1", "-P", str(at_once), "sh", "-euc", _PLAIN, "sh"]
    process.run(*words, stdin=lines)


def _skopeo(site: Site, lock: Path, mirror: str) -> None:
    """One process for all images, as ours is. It keeps the last part alone of a repository's path."""
    places = [Reference.parse(image["image"]) for image in json.loads(lock.read_text())["images"]]
    (above,) = {place.repository.rpartition("/")[0] for place in places}
    images = {place.repository: [place.tag] for place in places}
    listed = site.home / "skopeo.yaml"
    listed.write_text(json.dumps({site.vendor: {"tls-verify": False, "images": images}}))
    words = ("--all", "--preserve-digests", "--dest-tls-verify=false", "--src", "yaml", "--dest", "docker")
    process.run("skopeo", "sync", *words, listed, f"{mirror}/{above}")


def _blobs(lock: Path) -> Iterator[tuple[str, str]]:
    document: MirrorLockDocument = json.loads(lock.read_text())
    for image in document["images"]:
        for platform in image["platforms"]:
            for digest in platform["blobs"]:
                yield Reference.parse(image["image"]).repository, digest


def _pinned(image: str) -> Reference:
    place = Reference.parse(image)
    return place.with_digest(client().head_manifest(place).digest)


def _answered(log: Path) -> int:
    """Requests that a registry has answered, by its log."""
    return log.read_text().count('msg="response completed')
