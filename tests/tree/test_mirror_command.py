"""`driverforge mirror` against a real registry that plays the vendor's."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from driverforge_build.cli import run
from driverforge_mirror.lists.target import in_registry
from driverforge_oci.reference import Reference
from support.jsonschemas import check_document
from support.machines import registry
from support.process import missing
from support.samples.chartsite import BESIDE_THE_DRIVER
from support.samples.clusternodes import node, write_nodes
from support.samples.vendorregistry import client, copy_image, put_image

DRIVER = "nvcr.io/nvidia/driver:595.91.07-ubuntu22.04"
IMAGES = (DRIVER, *BESIDE_THE_DRIVER)


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

    @property
    def to(self) -> list[str]:
        """The words that name the mirror, another path of the same registry."""
        return ["--to", f"http://{self.address}/mirror", "--mirror-lock", str(self.lock_file)]

    def fill_mirror(self) -> list[str]:
        """Copy what `rewrite` says, from the vendor's side; returns the places."""
        out = self.folder / "out"
        assert run(["mirror", "rewrite", *self.to, "--out", str(out)]) == 0
        lines = [line.split() for line in (out / "images.txt").read_text().splitlines()]
        for source, place in lines:
            copy_image(self.place(source), Reference.parse(place))
        return [place for _, place in lines]

    def repository(self, name: str) -> Path:
        """The registry's own folder of a repository."""
        return self.folder / "registry/data/docker/registry/v2/repositories" / name

    def values(self, text: str) -> list[str]:
        path = self.folder / "values.yaml"
        path.write_text(text)
        return ["--values", str(path)]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if gone := missing("docker-registry", "setpriv"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    folder = tmp_path_factory.mktemp("vendor")

    def fill(address: str) -> None:
        vendor = Vendor(folder, address)
        for image in IMAGES:
            put_image(vendor.place(image))
        write_nodes(folder, node("gpu-0"))
        assert vendor.lock() == 0

    return registry.filled(folder, fill)


@pytest.fixture
def vendor(tmp_path: Path, images: Path) -> Iterator[Vendor]:
    write_nodes(tmp_path, node("gpu-0"))
    with registry.serve(registry.copy_of(images, tmp_path / "registry")) as server:
        yield Vendor(tmp_path, server.address)


@pytest.fixture
def listed(vendor: Vendor, images: Path) -> None:
    """The list is there, as `mirror lock` wrote it for all who do not ask what it writes."""
    shutil.copy(images / vendor.lock_file.name, vendor.lock_file)


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


def test_a_registry_without_tls_is_asked_as_its_address_says(vendor: Vendor) -> None:
    """Of 127.1 no client supposes that it has none, as of 127.0.0.1."""
    place = f"{vendor.address.replace('127.0.0.1', '127.1')}/nvcr.io"
    registries = {**vendor.registries, "nvcr.io": f"http://{place}/"}
    words = [word for pair in registries.items() for word in ("--registry", "=".join(pair))]
    assert vendor.lock(*words) == 0
    mirror = f"http://{place}".replace("/nvcr.io", "/mirror")
    for to in (["--to", mirror], ["--to-archive", str(vendor.folder / "gpu")]):
        assert run(["mirror", "copy", *to, "--mirror-lock", str(vendor.lock_file), *words]) == 0
    assert run(["mirror", "verify", "--to", mirror, "--mirror-lock", str(vendor.lock_file), "--deep"]) == 0


def test_the_same_inputs_give_the_same_bytes(vendor: Vendor) -> None:
    assert vendor.lock() == 0
    first = vendor.lock_file.read_bytes()
    assert vendor.lock() == 0
    assert vendor.lock_file.read_bytes() == first


def test_a_pipe_is_read_once_and_its_digest_is_of_what_came(vendor: Vendor) -> None:
    """As a shell's <(kubectl get nodes -o json) gives it: whoever reads again finds nothing."""
    data = (vendor.folder / "nodes.json").read_bytes()
    reading, writing = os.pipe()
    with os.fdopen(reading), Path(f"/dev/fd/{writing}").open("wb") as pipe:
        os.close(writing)
        pipe.write(data)
        pipe.close()
        assert vendor.lock("--nodes", f"/dev/fd/{reading}") == 0
    inputs = vendor.document()["inputs"]
    assert inputs == {f"/dev/fd/{reading}": hashlib.sha256(data).hexdigest()}


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


def test_platforms_that_leave_a_node_out_are_an_error(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    write_nodes(vendor.folder, node("gpu-0"), node("gpu-1", arch="arm64"))
    assert vendor.lock("--platform", "linux/amd64") == 65
    assert "--platform leaves out linux/arm64, which nodes need" in capsys.readouterr().err
    assert not vendor.lock_file.exists()
    assert vendor.lock("--platform", "linux/amd64", "--platform", "linux/arm64/v8") == 0


def test_a_platform_that_an_image_was_never_made_for_is_told(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    put_image(vendor.place(DRIVER), archs=["amd64"])
    both = ["--platform", "linux/amd64", "--platform", "linux/arm64"]
    assert vendor.lock(*both) == 0
    told = f"{DRIVER} has no image for linux/arm64, which --platform names: the list has linux/amd64 of it"
    assert told in capsys.readouterr().err
    assert [one for one in vendor.document()["warnings"] if "has no image" in one] == [told]


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


@pytest.mark.usefixtures("listed", "no_pauses")
def test_a_registry_that_is_away_is_an_error_and_never_a_shorter_list(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    before = vendor.lock_file.read_bytes()
    assert vendor.lock("--registry", "registry.k8s.io=127.0.0.1:9") == 75
    said = capsys.readouterr().err
    assert "registries do not say whether they have 1 of the images; nothing is locked" in said
    assert "registry.k8s.io/nfd/node-feature-discovery:v0.19.0: " in said
    assert vendor.lock_file.read_bytes() == before


@pytest.mark.usefixtures("listed")
def test_an_image_is_explained_from_the_lock_alone(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
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
    # by the place in a mirror, which is what a pod's events name
    assert run(["mirror", "explain", "registry.site/kse/nvidia/driver:595.91.07-ubuntu22.04", *words]) == 0
    assert run(["mirror", "explain", "registry.site/kse/driver:595.91.07-ubuntu24.04", *words]) == 1
    assert f"needed of it: {DRIVER}" in capsys.readouterr().err


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


@pytest.mark.usefixtures("listed")
def test_a_filled_mirror_holds_the_whole_list(vendor: Vendor, capsys: pytest.CaptureFixture[str]) -> None:
    places = vendor.fill_mirror()
    capsys.readouterr()
    assert run(["mirror", "verify", *vendor.to, "--deep"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{place}  held" for place in places]
    assert run(["mirror", "inventory", *vendor.to]) == 0
    document = json.loads(capsys.readouterr().out)
    check_document("mirror-inventory", document)
    wanted: dict[str, int] = {}
    for image in vendor.document()["images"]:
        wanted[image["digest"]] = len(client().get_manifest(vendor.place(image["image"])).data)
        for platform in image["platforms"]:
            wanted |= {platform["digest"]: platform["size"], **platform["blobs"]}
    assert document["held"] == wanted
    assert document["mirror"] == f"{vendor.address}/mirror"


@pytest.mark.usefixtures("listed")
def test_an_empty_mirror_lacks_everything(vendor: Vendor, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["mirror", "verify", *vendor.to]) == 1
    said = capsys.readouterr()
    assert said.out.count("  absent") == len(IMAGES)
    assert f"--mirror-lock {vendor.lock_file}" in said.err
    assert run(["mirror", "inventory", *vendor.to]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["held"] == {}
    assert all(image["digest"] in image["missing"] for image in document["images"])


@pytest.mark.usefixtures("listed")
def test_what_verify_says_of_an_archives_list_brings_what_is_lacking(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a site there is the archive alone: no list of the connected side, and no vendor's registry."""
    archive = vendor.folder / "gpu"
    words = [word for pair in vendor.registries.items() for word in ("--registry", "=".join(pair))]
    mirror_lock = ["--mirror-lock", str(vendor.lock_file)]
    assert run(["mirror", "copy", "--to-archive", str(archive), *mirror_lock, *words]) == 0
    verify = [
        "mirror",
        "verify",
        "--to",
        f"http://{vendor.address}/site",
        "--mirror-lock",
        f"{archive}.list.json",
    ]
    capsys.readouterr()
    assert run(verify) == 1
    (step,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("next: "))
    assert run(shlex.split(step.partition(": driverforge ")[2])) == 0
    assert run(verify) == 0


@pytest.mark.usefixtures("listed")
def test_a_tag_that_stands_for_another_image_is_found(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    vendor.fill_mirror()
    other = put_image(Reference.parse(f"{vendor.address}/mirror/nvidia/driver:595.91.07-ubuntu22.04"))
    capsys.readouterr()
    assert run(["mirror", "verify", *vendor.to]) == 1
    assert f"moved  the tag 595.91.07-ubuntu22.04 stands for {other}" in capsys.readouterr().out


@pytest.mark.usefixtures("listed")
def test_what_an_archives_list_finds_missing_comes_from_the_archive(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    registries = [word for pair in vendor.registries.items() for word in ("--registry", "=".join(pair))]
    archive = str(vendor.folder / "gpu")
    copy = ["mirror", "copy", "--to-archive", archive, "--mirror-lock", str(vendor.lock_file), *registries]
    assert run(copy) == 0
    Path(f"{archive}.list.json.sig").write_text("c2lnbmVk\n")
    listed = ["--mirror-lock", f"{archive}.list.json", "--verifier", "sh -c true"]
    assert run(["mirror", "verify", *vendor.to[:2], *listed]) == 1
    (told,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("next: "))
    words = shlex.split(told.partition("driverforge ")[2])
    assert words[-4:] == ["--from-archive", archive, "--verifier", "sh -c true"]
    assert run(words) == 0
    assert run(["mirror", "verify", *vendor.to[:2], *listed]) == 0


@pytest.mark.usefixtures("listed")
def test_a_deep_look_finds_a_lost_blob_and_a_lost_platform(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    vendor.fill_mirror()
    found = {one["image"]: one["platforms"][1] for one in vendor.document()["images"]}
    layer = list(found[DRIVER]["blobs"])[1].removeprefix("sha256:")
    shutil.rmtree(vendor.repository("mirror/nvidia/driver") / "_layers/sha256" / layer)
    operator = found["nvcr.io/nvidia/gpu-operator:v26.7.0"]["digest"].removeprefix("sha256:")
    shutil.rmtree(vendor.repository("mirror/nvidia/gpu-operator") / "_manifests/revisions/sha256" / operator)
    capsys.readouterr()
    assert run(["mirror", "verify", *vendor.to]) == 0
    capsys.readouterr()
    assert run(["mirror", "verify", *vendor.to, "--deep", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    lacking = {one["image"]: one["missing"] for one in document["images"] if one["state"] == "incomplete"}
    assert lacking == {
        DRIVER: [f"sha256:{layer}"],
        "nvcr.io/nvidia/gpu-operator:v26.7.0": [f"sha256:{operator}"],
    }
    assert f"sha256:{operator}" not in document["held"]


@pytest.mark.usefixtures("listed", "no_pauses")
def test_a_mirror_that_is_away_is_not_said_to_lack_anything(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    words = ["--to", "http://127.0.0.1:9", "--mirror-lock", str(vendor.lock_file)]
    assert run(["mirror", "verify", *words]) == 75
    said = capsys.readouterr().out
    assert said.count("  unknown  ") == len(IMAGES)
    assert said.count("; check the name, the network") == len(IMAGES)


def test_rewrite_refuses_what_would_mix_two_repositories(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    put_image(vendor.place("site.test/a/driver:595.91.07-ubuntu22.04"))
    put_image(vendor.place("site.test/b/driver:v1"))
    text = "driver: {repository: site.test/a, manager: {repository: site.test/b, image: driver, version: v1}}"
    assert vendor.lock(*vendor.values(text)) == 0
    out = vendor.folder / "out"
    assert run(["mirror", "rewrite", *vendor.to, "--paths", "flatten", "--out", str(out)]) == 65
    assert not out.exists()
    assert run(["mirror", "rewrite", *vendor.to, "--out", str(out)]) == 0
    assert "certs.d/site.test/hosts.toml" in capsys.readouterr().out


def test_a_driver_for_the_next_boot_that_is_not_there_yet(
    vendor: Vendor, capsys: pytest.CaptureFixture[str]
) -> None:
    put_image(vendor.place("nvcr.io/nvidia/driver:580-5.15.0-131-generic-ubuntu22.04"))
    values = vendor.values("driver: {version: 580, usePrecompiled: true}")
    assert vendor.lock(*values, "--kernel", "5.15.0-139-generic") == 65
    said = capsys.readouterr().err
    assert (
        "driver:580-5.15.0-139-generic-ubuntu22.04: driver, the driver: for the next boot of 1 node" in said
    )
    assert "it has: 580-5.15.0-131-generic-ubuntu22.04" in said
    assert "or leave out --lock and --kernel" in said
    assert vendor.lock(*values) == 0


@pytest.mark.parametrize("old", ["nvcr.io/nvidia/gpu-operator:v26.7.0", "sha256:"])
@pytest.mark.usefixtures("listed")
def test_a_lock_whose_names_are_none_is_refused(
    vendor: Vendor, capsys: pytest.CaptureFixture[str], old: str
) -> None:
    vendor.lock_file.write_text(vendor.lock_file.read_text().replace(old, "../../x/", 1))
    assert run(["mirror", "verify", *vendor.to]) == 65
    assert "is no list of a mirror" in capsys.readouterr().err
