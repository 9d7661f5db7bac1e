"""An image store for a guest's containerd, filled on this machine.

Unpacking layers takes minutes under TCG, and seconds here. A containerd of the guest's version imports the
images into a folder. The folder becomes an ext4 image (mke2fs -d keeps whiteouts and extended attributes),
and that becomes the guest's /var/lib/containerd.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
import tempfile
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from driverforge_core.errors import InputError
from support import cache
from support.machines import containerd
from support.machines.guest import LATE_SIZE, Guest
from support.machines.rootfs import ext4

_SPARE = 3 << 30  # bytes that containers in the guest may write
_MANIFESTS = ", ".join(f"application/vnd.oci.image.{kind}.v1+json" for kind in ("index", "manifest"))

# an OCI archive (`docker buildx build -o type=oci`), or REGISTRY/NAME:TAG of a plain-HTTP registry
Source = Path | str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """What a container runtime knows about an image that it unpacked (OCI image specification, config.md)."""

    name: str
    digest: str
    chain: str  # chain id of the topmost layer: the key of its snapshot
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    environment: tuple[str, ...]
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A disk for `rootfs.systemd_machine(store=…)` and the images that are in it, by name."""

    disk: Path
    images: Mapping[str, StoredImage]


def make(images: Mapping[str, Source]) -> Store:
    """A cached store with these images: the name it shall have in the guest → where it is now. Needs root."""
    inputs = {"images": {name: _identity(source) for name, source in images.items()}, "layout": 2}

    def fill(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="driverforge-store-", dir="/var/tmp") as name:
            home = Path(name)
            with containerd.launch(home) as daemon:
                stored = [_import(daemon, name, source) for name, source in images.items()]
            (folder / "images.json").write_text(json.dumps([asdict(image) for image in stored], indent=1))
            ext4(home / "root", folder / "store.img", spare=_SPARE, size=LATE_SIZE)

    entry = cache.cached("store", inputs, fill)
    rows: list[dict[str, Any]] = json.loads((entry / "images.json").read_text())
    stored = [_stored(row) for row in rows]
    return Store(disk=entry / "store.img", images={image.name: image for image in stored})


def attach(guest: Guest) -> None:
    """Make the guest's containerd use its store disk."""
    guest.run("systemctl stop containerd").ok()
    guest.mount("store", "/var/lib/containerd")
    guest.run("systemctl start containerd").ok()


def _stored(row: dict[str, Any]) -> StoredImage:
    lists: dict[str, Any] = {key: tuple(row.pop(key)) for key in ("entrypoint", "command", "environment")}
    return StoredImage(**row, **lists)


def _identity(source: Source) -> str:
    if isinstance(source, str):
        registry, _, rest = source.partition("/")
        name, _, tag = rest.rpartition(":")
        request = urllib.request.Request(
            f"http://{registry}/v2/{name}/manifests/{tag}", headers={"Accept": _MANIFESTS}, method="HEAD"
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(answer.headers["Docker-Content-Digest"])
    with tarfile.open(source) as archive:
        index = archive.extractfile("index.json")
        if index is None:
            raise InputError(f"{source} is no OCI archive: it has no index.json")
        return hashlib.sha256(index.read()).hexdigest()


def _import(daemon: containerd.Containerd, name: str, source: Source) -> StoredImage:
    if isinstance(source, str):
        daemon.ctr("images", "pull", "--plain-http", source)
        if source != name:
            daemon.ctr("images", "tag", source, name)
    else:
        daemon.ctr("images", "import", "--base-name", "driverforge.test/import", "--digests", source)
        listed = daemon.ctr("images", "ls").stdout.splitlines()
        imported = [line.split()[0] for line in listed if line.startswith("driverforge.test/import@")]
        # an archive may name its image so itself
        daemon.ctr("images", "tag", "--force", imported[0], name)
        daemon.ctr("images", "rm", *imported)
    digest = next(
        line.split()[2] for line in daemon.ctr("images", "ls").stdout.splitlines() if line.split()[0] == name
    )
    return _describe(daemon, name, digest)


def _describe(daemon: containerd.Containerd, name: str, digest: str) -> StoredImage:
    document = _blob(daemon, digest)
    if "manifests" in document:  # attestations have the platform unknown/unknown
        wanted = next(
            entry for entry in document["manifests"] if entry.get("platform", {}).get("os") == "linux"
        )
        document = _blob(daemon, wanted["digest"])
    config = _blob(daemon, document["config"]["digest"])
    settings = config.get("config", {})
    return StoredImage(
        name=name,
        digest=digest,
        chain=chain_id(config["rootfs"]["diff_ids"]),
        entrypoint=tuple(settings.get("Entrypoint") or ()),
        command=tuple(settings.get("Cmd") or ()),
        environment=tuple(settings.get("Env") or ()),
        directory=settings.get("WorkingDir") or "/",
    )


def _blob(daemon: containerd.Containerd, digest: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(daemon.ctr("content", "get", digest).stdout)
    return document


def chain_id(layers: list[str]) -> str:
    """The chain id of layers given by their diff ids.

    OCI image specification, config.md, "Layer ChainID".
    """
    chain = layers[0]
    for layer in layers[1:]:
        chain = "sha256:" + hashlib.sha256(f"{chain} {layer}".encode()).hexdigest()
    return chain
