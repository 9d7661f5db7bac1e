"""What a registry in memory is found to have of an image; tests/tree/test_mirror_command.py has a list's."""

from __future__ import annotations

import pytest

from driverforge_build.mirror.ask import find
from driverforge_core.errors import Unavailable, Unsupported
from driverforge_oci.client import OCI_INDEX, OCI_MANIFEST, RegistryClient
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import referrers_tag
from driverforge_oci.session import Session
from support.fakes.memoryregistry import HOST, MemoryRegistry

PLACE = Reference.parse(f"{HOST}/driver")


def put(registry: MemoryRegistry, tag: str, content: bytes, **more: object) -> str:
    blobs = [
        {"mediaType": "application/x", "digest": registry.add_blob("driver", data), "size": len(data)}
        for data in (b"{}", content)
    ]
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": blobs[0], "layers": blobs[1:]}
    return registry.add_manifest("driver", tag, OCI_MANIFEST, document | more)


def client(registry: MemoryRegistry) -> RegistryClient:
    return RegistryClient(Session(registry))


def test_what_is_attached_to_what_has_a_tag_of_cosigns_comes_along() -> None:
    registry = MemoryRegistry()
    image = put(registry, "1", b"image")
    bom = put(registry, f"{referrers_tag(image)}.sbom", b"SBOM")
    signature = put(registry, f"{referrers_tag(bom)}.sig", b"its signature")
    found = find(client(registry), PLACE.with_digest(image))
    assert [(one.subject, one.found.digest) for one in found.attached] == [(image, bom), (bom, signature)]


def test_signatures_of_signatures_come_to_an_end() -> None:
    registry = MemoryRegistry()
    image = put(registry, "1", b"image")
    registry.manifests["driver", f"{referrers_tag(image)}.sig"] = registry.manifests["driver", image]
    with pytest.raises(Unavailable, match="signatures of signatures") as refused:
        find(client(registry), PLACE.with_digest(image))
    assert refused.value.resolution


def test_an_index_without_all_that_it_names_says_what_is_lacking() -> None:
    registry, absent = MemoryRegistry(), "sha256:" + "a" * 64
    children = [
        {
            "mediaType": OCI_MANIFEST,
            "digest": digest,
            "size": 1,
            "platform": {"os": "linux", "architecture": arch},
        }
        for arch, digest in (("amd64", put(registry, "", b"image")), ("arm64", absent))
    ]
    document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": children}
    index = PLACE.with_digest(registry.add_manifest("driver", "1", OCI_INDEX, document))
    with pytest.raises(Unsupported, match="has not got all") as refused:
        find(client(registry), index)
    assert refused.value.details == (f"linux/arm64: {absent}",)
    assert "--platform" in refused.value.resolution
    assert find(client(registry), index, ["linux/amd64"]).digest == children[0]["digest"]
