"""*exists*: the tag alone is not believed, the image behind it has to name the same inputs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from driverforge_build import resources
from driverforge_build.matrix import load_matrix
from driverforge_build.publish.lookup import made_from, standing
from driverforge_build.render.bake import INPUTS_LABEL
from driverforge_build.render.context import context_of
from driverforge_build.render.requirements import BaseImage
from driverforge_build.render.spec import image_specs
from driverforge_oci.client import OCI_INDEX, OCI_MANIFEST, RegistryClient
from driverforge_oci.presence import Absent, Present, Unknown
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from support.fakes.fakeengine import store_image
from support.fakes.memoryregistry import HOST, MemoryRegistry, answer
from support.samples.synthetic import all_cells, synthetic_lock

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


MATRIX = load_matrix()
CELLS = {cell.key: cell for cell in all_cells(MATRIX)}
(IMAGE,) = image_specs([CELLS["debian12-amd64-535.261.03-jit"]], synthetic_lock(MATRIX))
BASE = BaseImage(name="debian:12", digest="sha256:" + "1" * 64)
JIT = context_of(replace(IMAGE, base=BASE), resources.templates())
ALIAS = f"{HOST}/driver:535.261.03-debian12"


def stands(**labels: str) -> list[str]:
    """What is told of the moving tag whose image has these labels."""
    registry = MemoryRegistry()
    if labels:
        place = Reference.parse(ALIAS)
        names = {key: f"org.opencontainers.image.base.{key}" for key in ("name", "digest")}
        names |= {key: f"io.driverforge.{key.replace('_', '-')}" for key in ("signer", "signer_key")}
        store_image(registry, place, {names.get(key, INPUTS_LABEL): text for key, text in labels.items()})
    return standing(client(registry), HOST, JIT)


def test_an_image_that_is_built_anew_for_its_base_is_told_so() -> None:
    old = "sha256:" + "2" * 64
    assert stands(inputs=OURS, name=BASE.name, digest=old) == [
        f"{ALIAS} stands for an image that was made from other inputs (ffffffffffff)",
        f"its base was {BASE.name}@{old}, it is {BASE} now",
    ]
    (line,) = stands(inputs=OURS, name=BASE.name, digest=BASE.digest)
    assert "made from other inputs" in line
    assert stands(inputs=OURS)[1] == f"its base was not stated, it is {BASE} now"


def test_an_image_that_another_key_signed_or_none_is_told_so() -> None:
    """As where a command of the pipeline is not told --sign-certificate."""
    same = {"inputs": OURS, "name": BASE.name, "digest": BASE.digest}
    assert stands(**same, signer="Site modules", signer_key="a1b2")[1:] == [
        "its modules were signed by Site modules (a1b2), by nobody now: --sign-certificate"
    ]


def test_what_a_moving_tag_stands_for_otherwise() -> None:
    (line,) = stands(inputs=JIT.inputs)
    assert line == f"{ALIAS} stands for an image that was made from the same inputs"
    assert stands() == [f"{ALIAS}: the registry does not have it"]
    busy = MemoryRegistry(trouble=lambda _: answer(429))
    (line,) = standing(client(busy), HOST, JIT)
    assert line.startswith(f"{ALIAS}: {HOST} ")
