"""What a registry in memory is found to have of an image; tests/tree/test_mirror_command.py has a list's."""

from __future__ import annotations

import pytest

from driverforge_core.errors import Unavailable, Unsupported
from driverforge_mirror.contents.ask import find, find_all, missing_platforms
from driverforge_mirror.needs.needed import Needs, Reason
from driverforge_oci.client import OCI_INDEX, OCI_MANIFEST, RegistryClient, digest_of
from driverforge_oci.reference import Reference
from driverforge_oci.referrers import referrers_tag
from driverforge_oci.session import Session
from support.fakes.memoryregistry import HOST, MemoryRegistry, answer

PLACE = Reference.parse(f"{HOST}/driver")


def put(registry: MemoryRegistry, tag: str, content: bytes, **more: object) -> str:
    blobs = [
        {"mediaType": "application/x", "digest": registry.add_blob("driver", data), "size": len(data)}
        for data in (b"{}", content)
    ]
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": blobs[0], "layers": blobs[1:]}
    return registry.add_manifest("driver", tag, OCI_MANIFEST, document | more)


def put_index(
    registry: MemoryRegistry, images: dict[str, str], attestations: dict[str, str] | None = None
) -> str:
    """`images` are digests by architecture, `attestations` BuildKit's by the digest that each is of."""
    manifests: list[dict[str, object]] = [
        {
            "mediaType": OCI_MANIFEST,
            "digest": digest,
            "size": 1,
            "platform": {"os": "linux", "architecture": arch},
        }
        for arch, digest in images.items()
    ]
    for subject, digest in (attestations or {}).items():
        manifests.append(
            {
                "mediaType": OCI_MANIFEST,
                "digest": digest,
                "size": 1,
                "annotations": {
                    "vnd.docker.reference.digest": subject,
                    "vnd.docker.reference.type": "attestation-manifest",
                },
                "platform": {"os": "unknown", "architecture": "unknown"},
            }
        )
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


@pytest.mark.parametrize("chosen", [["amd64"], ["amd64", "arm64"]])
def test_the_attestations_of_chosen_platforms_stay_in_the_index(chosen: list[str]) -> None:
    """BuildKit's are found by the index alone, so that one platform with one is an index too."""
    registry = MemoryRegistry()
    images = {arch: put(registry, "", arch.encode()) for arch in ("amd64", "arm64", "s390x")}
    attestations = {images[arch]: put(registry, "", f"of {arch}".encode()) for arch in images}
    index = PLACE.with_digest(put_index(registry, images, attestations))
    found = find(client(registry), index, [f"linux/{arch}" for arch in chosen])
    kept = [images[arch] for arch in chosen]
    assert [one.digest for one in found.platforms] == [*kept, *(attestations[one] for one in kept)]
    assert found.digest == digest_of(found.made.encode())


def test_an_attestation_is_no_platform_that_an_image_is_said_to_have() -> None:
    registry = MemoryRegistry()
    amd64 = put(registry, "", b"image")
    index = put_index(registry, {"amd64": amd64}, {amd64: put(registry, "", b"attestation")})
    needs = Needs(images={f"{PLACE}:1": [Reason(slot="driver", text="")]})
    found = find_all(client(registry), needs, {})
    told = missing_platforms(needs, found, ["linux/arm64"])
    assert told == [
        f"{PLACE}:1 has no image for linux/arm64, which --platform names: the list has linux/amd64 of it"
    ]
    with pytest.raises(Unsupported) as refused:
        find(client(registry), PLACE.with_digest(index), ["linux/arm64"])
    assert refused.value.details == ("it has: linux/amd64",)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_signature_is_named_and_no_login_is_asked_for(status: int) -> None:
    registry = MemoryRegistry()
    image = put(registry, "1", b"layer")
    tag = f"{referrers_tag(image)}.sig"
    registry.trouble = lambda request: answer(status) if request.url.endswith(tag) else None
    with pytest.raises(Unavailable, match="whether it has a signature is not told") as caught:
        find(client(registry), PLACE.with_tag("1"), platforms=())
    assert tag in caught.value.details[0]
    assert "docker login" not in caught.value.resolution
