"""*exists*: the tag alone is not believed, the image behind it has to name the same inputs."""

from __future__ import annotations

import json

import pytest

from driverforge_build.publish.lookup import made_from
from driverforge_build.render.bake import INPUTS_LABEL
from driverforge_oci.client import OCI_INDEX, OCI_MANIFEST, RegistryClient
from driverforge_oci.presence import Absent, Present, Unknown
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from support.fakes.memoryregistry import HOST, MemoryRegistry, answer

REFERENCE = Reference.parse(f"{HOST}/driver:535.261.03-debian12-rabc")
OURS = "f" * 64


def registry_with(labels: dict[str, str], *, architecture: str = "amd64") -> tuple[MemoryRegistry, str]:
    """A registry with one image behind an index at the tag, and the index's digest."""
    registry = MemoryRegistry()
    config = json.dumps({"config": {"Labels": labels}}).encode()
    layer = {
        "mediaType": "application/vnd.oci.image.config.v1+json",
        "digest": registry.add_blob("driver", config),
        "size": len(config),
    }
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": layer, "layers": []}
    digest = registry.add_manifest("driver", "", OCI_MANIFEST, document)
    child = {
        "mediaType": OCI_MANIFEST,
        "digest": digest,
        "size": len(json.dumps(document)),
        "platform": {"os": "linux", "architecture": architecture},
    }
    index = registry.add_manifest(
        "driver", REFERENCE.tag, OCI_INDEX, {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [child]}
    )
    return registry, index


def client(registry: MemoryRegistry) -> RegistryClient:
    return RegistryClient(Session(registry))


def test_an_image_of_the_same_inputs() -> None:
    registry, index = registry_with({INPUTS_LABEL: OURS})
    assert made_from(client(registry), REFERENCE, OURS, "linux/amd64") == Present(index)


@pytest.mark.parametrize("labels", [{INPUTS_LABEL: "e" * 64}, {}])
def test_an_image_of_other_inputs_is_not_ours_to_replace(labels: dict[str, str]) -> None:
    registry, _ = registry_with(labels)
    told = made_from(client(registry), REFERENCE, OURS, "linux/amd64")
    assert isinstance(told, Unknown)
    assert "made from other inputs" in told.reason


def test_another_architectures_image_says_nothing() -> None:
    registry, _ = registry_with({INPUTS_LABEL: OURS}, architecture="arm64")
    assert isinstance(made_from(client(registry), REFERENCE, OURS, "linux/amd64"), Unknown)


def test_no_image() -> None:
    assert made_from(client(MemoryRegistry()), REFERENCE, OURS, "linux/amd64") == Absent()


@pytest.mark.parametrize("status", [401, 403, 429, 500])
def test_a_registry_that_does_not_say(status: int) -> None:
    registry = MemoryRegistry(trouble=lambda _: answer(status))
    assert isinstance(made_from(client(registry), REFERENCE, OURS, "linux/amd64"), Unknown)
