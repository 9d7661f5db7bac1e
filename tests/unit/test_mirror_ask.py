"""What a registry in memory is found to have of an image; tests/tree/test_mirror_command.py has a list's."""

from __future__ import annotations

import pytest

from driverforge_build.mirror.ask import find, find_all
from driverforge_build.mirror.needs import Needs, Reason
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


def put_index(registry: MemoryRegistry, images: dict[str, str]) -> str:
    manifests = [
        {
            "mediaType": OCI_MANIFEST,
            "digest": digest,
            "size": 1,
            "platform": {"os": "linux", "architecture": arch},
        }
        for arch, digest in images.items()
    ]
    document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}
    return registry.add_manifest("driver", "1", OCI_INDEX, document)


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
    amd64 = put(registry, "", b"image")
    index = PLACE.with_digest(put_index(registry, {"amd64": amd64, "arm64": absent}))
    with pytest.raises(Unsupported, match="has not got all") as refused:
        find(client(registry), index)
    assert refused.value.details == (f"linux/arm64: {absent}",)
    assert "--platform" in refused.value.resolution
    assert find(client(registry), index, ["linux/amd64"]).digest == amd64


def test_an_image_that_is_named_by_digest_keeps_it_whatever_platforms_are_chosen() -> None:
    """A pod's image is that digest: of a choice with another one it would find nothing."""
    registry = MemoryRegistry()
    amd64 = put(registry, "", b"image")
    index = put_index(registry, {"amd64": amd64, "arm64": put(registry, "", b"another")})
    by_tag, *by_digest = (f"{PLACE}:1", f"{PLACE}@{index}", f"{PLACE}:1@{index}")
    needs = Needs(images={name: [Reason(slot="driver", text="")] for name in (by_tag, *by_digest)})
    found = find_all(client(registry), needs, {}, ["linux/amd64"])
    assert {name: one.digest for name, one in found.items()} == {
        by_tag: amd64,
        **dict.fromkeys(by_digest, index),
    }
