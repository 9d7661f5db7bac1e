"""The moving tag: it stands for the image that was pushed last, on one index for all architectures.

The index is an OCI image index (image spec 1.1).
"""

from __future__ import annotations

import json
from typing import Any

from driverforge_oci.client import OCI_INDEX, Descriptor, Manifest, RegistryClient
from driverforge_oci.reference import Reference
from driverforge_oci.session import NotFound


def move_alias(client: RegistryClient, alias: Reference, image: Manifest, platform: str) -> tuple[str, bool]:
    """Let a moving tag stand for `image` on `platform`, and for what it stood for on others.

    Returns the digest of its index and whether anything changed. Of two pushes for two architectures at the
    same moment one can be lost.
    """
    before = _standing(client, alias)
    mine = Descriptor(
        media_type=image.media_type, digest=image.digest, size=len(image.data), platform=platform
    )
    entries = {**{entry.platform: entry for entry in before}, platform: mine}
    data = index_text([entries[name] for name in sorted(entries)]).encode()
    try:
        if client.get_manifest(alias).data == data:
            return client.head_manifest(alias).digest, False
    except NotFound:
        pass
    return client.put_manifest(alias, data, OCI_INDEX), True


def _standing(client: RegistryClient, alias: Reference) -> list[Descriptor]:
    """Platform images that a tag stands for now.

    Attestations are left out: they belong to the index that named them.
    """
    try:
        manifest = client.get_manifest(alias)
    except NotFound:
        return []
    if manifest.is_index:
        return [child for child in manifest.children if child.platform and "unknown" not in child.platform]
    arch = client.image_configuration(alias, manifest).get("architecture", "")
    return [
        Descriptor(
            media_type=manifest.media_type,
            digest=manifest.digest,
            size=len(manifest.data),
            platform=f"linux/{arch if isinstance(arch, str) else ''}",
        )
    ]


def index_text(entries: list[Descriptor]) -> str:
    """An OCI image index (image spec 1.1); the same entries give the same bytes."""
    return json.dumps(
        {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [_entry(entry) for entry in entries]},
        separators=(",", ":"),
    )


def _entry(entry: Descriptor) -> dict[str, Any]:
    names = ("os", "architecture", "variant")
    platform = dict(zip(names, entry.platform.split("/"), strict=False))
    return {"mediaType": entry.media_type, "digest": entry.digest, "size": entry.size, "platform": platform}
