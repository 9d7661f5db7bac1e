"""Run `build --push` with a fake engine and a real registry, and kill it at its Nth event.

Call it as `python -m support.fakes.killablebuild FOLDER REGISTRY N [SHARD]`. FOLDER has site.yaml and
site.lock.json; below FOLDER/NAME (the environment's BUILDER) are this builder's own engine and caches. With
BY_BUILDERS in the environment the engine sends what it builds to the registry itself, and keeps none. An
event is a request to the registry, or a step of the engine. SIGKILL comes before the Nth; 0 means never.
What was built and pushed is in FOLDER/events, a line each.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from driverforge_build.advice import BuildOptions, Given, Selection
from driverforge_build.app.build import BuildRequest, run
from driverforge_build.app.prepare import exit_status, prepare
from driverforge_build.app.runner import CellListener
from driverforge_build.fetch.web import registry_transport
from driverforge_build.plan.shards import ShardWanted
from driverforge_build.ports import BuildJob, BuiltImage, Layer, StepListener
from driverforge_build.publish.lookup import image_lookup
from driverforge_build.publish.upload import Publisher
from driverforge_core.errors import Unavailable
from driverforge_oci.client import OCI_MANIFEST, RegistryClient
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from driverforge_oci.transport import Request, Response, Transport

BUILD_S = 0.02
"""How long a build takes, so that builds of several workers and builders overlap."""


WORKERS = 3


class KillFuse:
    def __init__(self, events: int) -> None:
        self._left = events
        self._lock = threading.Lock()

    def burn(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class KillableTransport:
    inner: Transport
    fuse: KillFuse

    def send(self, request: Request) -> Response:
        self.fuse.burn()
        return self.inner.send(request)


@dataclass(frozen=True, slots=True)
class FolderEngine:
    """An engine whose images are files: they outlive a client, as a daemon's do. Pushes are real ones."""

    folder: Path
    events: Path
    client: RegistryClient
    fuse: KillFuse
    makes_images: bool = True

    def check(self) -> str:
        return "a folder"

    def network(self) -> str:
        return ""

    def build(self, job: BuildJob, progress: StepListener) -> str:
        time.sleep(BUILD_S)
        self.fuse.burn()
        labels = _labels(job)
        if job.remote:
            digest = self._sent(Reference.parse(job.remote).with_tag(""), labels)
            self._tell("built", job.cell)
            return digest
        new = self.folder / f".{os.getpid()}-{threading.get_ident()}"
        new.write_text(json.dumps(labels))
        new.rename(self._file(job.reference))
        self._tell("built", job.cell)
        return ""

    def inspect(self, reference: str) -> BuiltImage | None:
        try:
            labels = json.loads(self._file(reference).read_text())
        except FileNotFoundError:
            return None
        layer = Layer(digest="sha256:0", size=1, created_by="COPY")
        return BuiltImage(reference=reference, id="sha256:1", size=1, layers=(layer,), labels=labels)

    def push(self, reference: str, remote: str, progress: StepListener) -> None:
        labels = json.loads(self._file(reference).read_text())
        self._sent(Reference.parse(remote), labels)
        self._tell("pushed", labels["io.driverforge.cell"])

    def _sent(self, place: Reference, labels: Mapping[str, str]) -> str:
        """Push an image, under the place's tag or else by its digest, which is returned."""
        arch = labels["io.driverforge.cell"].split("-")[1]
        config = json.dumps({"architecture": arch, "os": "linux", "config": {"Labels": labels}}).encode()
        digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
        self.client.put_blob(place, config, digest=digest, size=len(config))
        descriptor = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest}
        manifest = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": {**descriptor, "size": len(config)},
            "layers": [],
        }
        data = json.dumps(manifest).encode()
        name = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.client.put_manifest(place if place.tag else place.with_digest(name), data, OCI_MANIFEST)
        return name

    def pull(self, remote: str, reference: str, platform: str) -> None:
        raise Unavailable("this engine has what it has built")

    def files(self, reference: str, folder: str) -> Mapping[str, bytes] | None:
        return None

    def _file(self, reference: str) -> Path:
        return self.folder / reference.replace("/", "_")

    def _tell(self, what: str, cell: str) -> None:
        with self.events.open("a") as file:
            file.write(f"{os.environ['BUILDER']} {what} {cell}\n")


def _labels(job: BuildJob) -> dict[str, str]:
    """The labels that the bake file gives the image."""
    target = json.loads(job.bake_file.read_text())["target"][job.target]
    return {**target["labels"], "io.driverforge.cell": job.cell}


@contextmanager
def silent(_: list[str]) -> Iterator[CellListener]:
    yield lambda *_: None


def main(words: list[str]) -> int:
    folder, registry, fuse = Path(words[0]), words[1], KillFuse(int(words[2]))
    shard = None
    if len(words) > 3:
        number, _, count = words[3].partition("/")
        shard = ShardWanted(number=int(number), of=int(count))
    own = folder / os.environ["BUILDER"]
    (own / "images").mkdir(parents=True, exist_ok=True)
    transport = KillableTransport(registry_transport(os.environ, lambda *_: None), fuse)
    client = RegistryClient(Session(transport))
    given = Given(matrix=folder / "site.yaml", lock=folder / "site.lock.json")
    prepared = prepare(
        Selection(given=given),
        lookup_for=lambda lock: image_lookup(client, registry, lock, Given()),
        shard=shard,
    )
    engine = FolderEngine(own / "images", folder / "events", client, fuse)
    publisher = Publisher(
        registry=registry, engine=engine, client=client, given=given, family_of=prepared.family_of()
    )
    done = run(
        prepared,
        BuildRequest(folder=own, options=BuildOptions(workers=WORKERS)),
        [engine],
        silent,
        publisher=publisher,
        by_builders="BY_BUILDERS" in os.environ,
    )
    for report in done.reports:
        if report.error:
            print(report.error.render(), file=sys.stderr)
    return exit_status(prepared.plan, done.reports)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
