"""`driverforge mirror` against a real registry that plays the vendor's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from driverforge_build.cli import run
from driverforge_build.mirror.ask import in_registry
from driverforge_oci.reference import Reference
from support.jsonschemas import check_document
from support.machines import registry
from support.process import missing
from support.samples.clusternodes import node, write_nodes
from support.samples.vendorregistry import client, put_image

DRIVER = "nvcr.io/nvidia/driver:595.91.07-ubuntu22.04"
IMAGES = (
    DRIVER,
    "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
    "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0",
    "nvcr.io/nvidia/gpu-operator:v26.7.0",
    "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
    "nvcr.io/nvidia/k8s/container-toolkit:v1.20.0",
    "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless",
    "registry.k8s.io/nfd/node-feature-discovery:v0.19.0",
)


@dataclass(frozen=True, slots=True)
class Vendor:
    folder: Path
    address: str

    @property
    def registries(self) -> dict[str, str]:
        return {host: f"{self.address}/{host}" for host in ("nvcr.io", "registry.k8s.io", "site.test")}

    def place(self, image: str) -> Reference:
        return in_registry(Reference.parse(image), self.registries)

    @property
    def lock_file(self) -> Path:
        return self.folder / "mirror.lock.json"

    def lock(self, *words: str, chart: str = "v26.7.0") -> int:
        given = ["--chart", chart, "--nodes", str(self.folder / "nodes.json")]
        given += [word for pair in self.registries.items() for word in ("--registry", "=".join(pair))]
        return run(["mirror", "lock", *given, "--mirror-lock", str(self.lock_file), *words])

    def document(self) -> Any:
        return json.loads(self.lock_file.read_text())

    def values(self, text: str) -> list[str]:
        path = self.folder / "values.yaml"
        path.write_text(text)
        return ["--values", str(path)]


@pytest.fixture
def vendor(tmp_path: Path) -> Iterator[Vendor]:
    if gone := missing("docker-registry", "setpriv"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    write_nodes(tmp_path, node("gpu-0"))
    with registry.serve(tmp_path / "registry") as server:
        one = Vendor(tmp_path, server.address)
        for image in IMAGES:
            put_image(one.place(image))
        yield one


def test_every_image_is_locked_by_digest_with_its_reasons(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vendor.lock("--json") == 0
    document = json.loads(capsys.readouterr().out)
    check_document("mirror-lock", document)
    assert vendor.document() == document
    found = {one["image"]: one for one in document["images"]}
    assert set(found) == set(IMAGES)
    driver = found[DRIVER]
    assert driver["digest"] == client().head_manifest(vendor.place(DRIVER)).digest
    assert [one["platform"] for one in driver["platforms"]] == ["linux/amd64", "linux/arm64"]
    (reason,) = driver["reasons"]
    assert (reason["slot"], reason["os"], reason["nodes"]) == ("driver", "ubuntu22.04", ["gpu-0"])
    assert len(document["inputs"][str(vendor.folder / "nodes.json")]) == 64
    # each part once: the shared layer counts once for both architectures
    parts: dict[str, int] = {}
    for platform in driver["platforms"]:
        parts |= {platform["digest"]: platform["size"], **platform["blobs"]}
    index = client().get_manifest(vendor.place(DRIVER))
    assert driver["size"] == sum(parts.values()) + len(index.data)


def test_the_same_inputs_give_the_same_bytes(vendor: Vendor) -> None:
    assert vendor.lock() == 0
    first = vendor.lock_file.read_bytes()
    assert vendor.lock() == 0
    assert vendor.lock_file.read_bytes() == first


def test_an_image_without_an_index_is_locked_too(vendor: Vendor) -> None:
    put_image(vendor.place(DRIVER), archs=["amd64"], index=False)
    assert vendor.lock() == 0
    (driver,) = [one for one in vendor.document()["images"] if one["image"] == DRIVER]
    assert [one["platform"] for one in driver["platforms"]] == ["linux/amd64"]
    assert driver["platforms"][0]["digest"] == driver["digest"]


def test_an_architecture_that_an_image_lacks_is_told(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    write_nodes(vendor.folder, node("gpu-0"), node("gpu-1", arch="arm64"))
    put_image(vendor.place(DRIVER), archs=["amd64"])
    assert vendor.lock() == 0
    told = f"{DRIVER} has no image for linux/arm64, which nodes need"
    assert told in capsys.readouterr().err
    assert told in vendor.document()["warnings"]


def test_a_tag_that_does_not_exist_is_an_error_that_names_its_neighbours(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vendor.lock(*vendor.values("driver: {version: 595.91.17}")) == 65
    said = capsys.readouterr().err
    assert "1 of 8 images do not exist; nothing is locked" in said
    assert "nvcr.io/nvidia/driver:595.91.17-ubuntu22.04: driver, the driver: 1 node" in said
    assert "it has: 595.91.07-ubuntu22.04" in said
    assert not vendor.lock_file.exists()


def test_a_missing_image_of_ours_names_the_command_that_builds_it(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "driver: {repository: site.test/gpu, version: 580, usePrecompiled: true}"
    assert vendor.lock(*vendor.values(text)) == 65
    said = capsys.readouterr().err
    assert "driverforge build --push --registry site.test/gpu --select 'ubuntu22.04-amd64-580*-" in said


def test_a_registry_that_is_away_is_an_error_and_never_a_shorter_list(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vendor.lock() == 0
    before = vendor.lock_file.read_bytes()
    assert vendor.lock("--registry", "registry.k8s.io=127.0.0.1:9") == 75
    said = capsys.readouterr().err
    assert "registries do not say whether they have 1 of the images; nothing is locked" in said
    assert "registry.k8s.io/nfd/node-feature-discovery:v0.19.0: " in said
    assert vendor.lock_file.read_bytes() == before


def test_an_image_is_explained_from_the_lock_alone(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vendor.lock() == 0
    capsys.readouterr()
    words = ["--mirror-lock", str(vendor.lock_file)]
    assert run(["mirror", "explain", "k8s-device-plugin", *words]) == 0
    said = capsys.readouterr().out
    assert "k8s-device-plugin:v0.20.0: needed, sha256:" in said
    assert "    gfd: labels nodes with what their GPUs are: gfd.enabled is true" in said
    assert run(["mirror", "explain", "nvcr.io/nvidia/cloud-native/k8s-cc-manager:v0.4.3", *words]) == 0
    assert "left out\n    ccManager: confidential computing: sandboxWorkloads.enabled is false" in (
        capsys.readouterr().out
    )
    assert run(["mirror", "explain", "nvcr.io/nvidia/driver:5.15.0-131-generic-ubuntu22.04", *words]) == 1
    said = capsys.readouterr().err
    assert "neither needed nor left out: chart v26.7.0 does not name it" in said
    assert f"needed of it: {DRIVER}" in said


def test_a_plan_asks_nobody(vendor: Vendor, capsys: pytest.CaptureFixture[str]) -> None:
    assert vendor.lock("--plan", "--registry", "nvcr.io=127.0.0.1:9") == 0
    assert f"{DRIVER}\n    driver: the driver: 1 node with ubuntu22.04" in capsys.readouterr().out
    assert not vendor.lock_file.exists()


@pytest.mark.parametrize("words", [[], ["--values", "/dev/null"], ["--chart", "v26.7.0", "--plan", "--json"]])
def test_words_that_do_not_go_together(words: list[str]) -> None:
    assert run(["mirror", "lock", *words]) == 64


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 2}', "[]"])
def test_a_damaged_lock_is_refused(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mirror.lock.json"
    file.write_text(text)
    assert run(["mirror", "explain", "x", "--mirror-lock", str(file)]) == 65
    assert "is no list of a mirror" in capsys.readouterr().err
