"""Small images in a registry that plays a vendor's: indexes, manifests, configurations, layers."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from typing import Any

from driverforge_build.fetch.web import registry_transport
from driverforge_oci.client import OCI_INDEX, OCI_MANIFEST, RegistryClient
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session


def client() -> RegistryClient:
    return RegistryClient(Session(registry_transport({}, lambda *_: None)))


def put_image(place: Reference, *, archs: Sequence[str] = ("amd64", "arm64"), index: bool = True) -> str:
    """Put an image under a tag, and return its digest. Its name is in its layers, so that images differ."""
    registry = client()
    entries = [_put_manifest(registry, place, arch, tagged=not index) for arch in archs]
    if not index:
        return str(entries[0]["digest"])
    document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}
    return registry.put_manifest(place, json.dumps(document).encode(), OCI_INDEX)


def _put_manifest(registry: RegistryClient, place: Reference, arch: str, *, tagged: bool) -> dict[str, Any]:
    config = json.dumps({"architecture": arch, "os": "linux", "config": {}}).encode()
    layers = [f"{place.repository}:{place.tag} {arch}".encode(), b"shared by all" * 100]
    parts = [_put_blob(registry, place, data) for data in (config, *layers)]
    parts[0]["mediaType"] = "application/vnd.oci.image.config.v1+json"
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": parts[0], "layers": parts[1:]}
    data = json.dumps(document).encode()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    registry.put_manifest(place if tagged else place.with_digest(digest), data, OCI_MANIFEST)
    platform = {"os": "linux", "architecture": arch}
    return {"mediaType": OCI_MANIFEST, "digest": digest, "size": len(data), "platform": platform}


def _put_blob(registry: RegistryClient, place: Reference, data: bytes) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    registry.put_blob(place, data, digest=digest, size=len(data))
    return {"mediaType": "application/octet-stream", "digest": digest, "size": len(data)}


def copy_image(source: Reference, place: Reference) -> None:
    """Copy an image with all its platforms, byte by byte, as a mirror tool does."""
    registry = client()
    top = registry.get_manifest(source)
    for child in top.children:
        copy_image(source.with_digest(child.digest), place.with_digest(child.digest))
    for part in () if top.is_index else (top.config, *top.layers):
        content = io.BytesIO()
        registry.get_blob(source, part.digest, content)
        registry.put_blob(place, content.getvalue(), digest=part.digest, size=part.size)
    registry.put_manifest(place, top.data, top.media_type)
