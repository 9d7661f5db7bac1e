"""`driverforge index` against a real registry: aliases for all architectures, and what covered.json says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_build.advice import Given
from driverforge_build.cli import run
from driverforge_build.documents import CoveredImage
from driverforge_build.fetch.web import registry_transport
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import load_matrix
from driverforge_build.plan.rows import all_cells
from driverforge_build.render.bake import immutable_tag_of
from driverforge_build.render.context import driver_contexts
from driverforge_build.report.covered import merge_covered
from driverforge_core.errors import InputError
from driverforge_oci.client import OCI_MANIFEST, RegistryClient
from driverforge_oci.reference import Reference
from driverforge_oci.session import Session
from support.jsonschemas import check_document
from support.machines import registry
from support.process import missing
from support.samples.locks import kernel, sample_driver, target
from support.samples.sampledebian import MATRIX, write_matrix

KERNEL = "6.1.0-50-generic"
AMD64, ARM64 = (f"debian12-{arch}-535.261.03-{KERNEL}" for arch in ("amd64", "arm64"))
NO_PROBES = MATRIX[: MATRIX.index("probes:")] + MATRIX[MATRIX.index("systems:\n") :]
TWO_ARCHS = NO_PROBES.replace("archs: [amd64]\n", "archs: [amd64, arm64]\n").replace(
    "{amd64: [cloud-amd64]}", "{amd64: [generic], arm64: [generic]}"
)


@dataclass(frozen=True, slots=True)
class Site:
    folder: Path
    registry: str

    @property
    def client(self) -> RegistryClient:
        return RegistryClient(Session(registry_transport({}, lambda *_: None)))

    @property
    def given(self) -> list[str]:
        files = ["--matrix", str(self.folder / "site.yaml"), "--lock", str(self.folder / "site.lock.json")]
        return [*files, "--registry", self.registry, "--select", f"*-{KERNEL}"]

    def store(self, key: str, *, driver: str = "", tag: str = "") -> str:
        """Put a cell's image into the registry, as a push leaves it; returns its digest."""
        matrix, lock = load_matrix(self.folder / "site.yaml"), self.lock()
        cells = [cell for cell in all_cells(matrix, lock) if cell.key == key]
        (made,) = driver_contexts(cells, lock, given=Given())
        cell = key.replace("535.261.03", driver) if driver else key
        labels = {"io.driverforge.inputs": made.inputs, "io.driverforge.cell": cell}
        place = Reference.parse(f"{self.registry}/driver:{tag or immutable_tag_of(made)}")
        arch = made.image.arch
        config = json.dumps({"architecture": arch, "os": "linux", "config": {"Labels": labels}}).encode()
        digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
        self.client.put_blob(place, config, digest=digest, size=len(config))
        described = {"mediaType": "application/json", "digest": digest, "size": len(config)}
        manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described, "layers": []}
        return self.client.put_manifest(place, json.dumps(manifest).encode(), OCI_MANIFEST)

    @staticmethod
    def lock() -> Lock:
        drivers = {"535.261.03": sample_driver()}
        made = {arch: target(kernel(KERNEL), arch=arch, drivers=drivers) for arch in ("amd64", "arm64")}
        return Lock(targets={f"debian12-{arch}": one for arch, one in made.items()})


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    if gone := missing("docker-registry", "setpriv"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    write_matrix(tmp_path, TWO_ARCHS)
    (tmp_path / "site.lock.json").write_text(dump_lock(Site.lock()))
    with registry.serve(tmp_path / "registry") as server:
        yield Site(tmp_path, f"{server.address}/site")


def test_an_alias_stands_for_what_is_there_and_then_for_all(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    amd64 = site.store(AMD64)
    assert run(["index", *site.given]) == 0
    said = capsys.readouterr()
    alias = f"{site.registry}/driver:535-{KERNEL}-debian12"
    assert f"{alias}  moved  linux/amd64\n" in said.out
    assert f"{ARM64}: the registry does not have its image" in said.err
    arm64 = site.store(ARM64)
    assert run(["index", *site.given, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    check_document("index", document)
    (joined,) = document["aliases"]
    assert joined["images"] == {"linux/amd64": amd64, "linux/arm64": arm64}
    assert (joined["moved"], joined["missing"]) == (True, [])
    assert run(["index", *site.given]) == 0
    assert "as it was  linux/amd64, linux/arm64" in capsys.readouterr().out


def test_the_page_tells_what_index_found_in_the_registry(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last steps of a pipeline: index, plan, page."""
    digest = site.store(AMD64)
    covered, plan, page = (site.folder / name for name in ("covered.json", "plan.json", "index.html"))
    assert run(["index", *site.given, "--covered", str(covered)]) == 0
    capsys.readouterr()
    assert run(["plan", *site.given, "--json"]) == 0
    plan.write_text(capsys.readouterr().out)
    check_document("plan", json.loads(plan.read_text()))
    assert run(["page", str(plan), str(covered), "--output", str(page)]) == 0
    assert f"{page}  2 images" in capsys.readouterr().out
    text = page.read_text()
    assert "1 of 2 are in the registry" in text
    assert f"<code>{site.registry}/driver:535-{KERNEL}-debian12</code>" in text
    assert f"@{digest}</code>" in text
    options = f"--matrix {site.folder}/site.yaml --lock {site.folder}/site.lock.json"
    assert f"driverforge build {options} --select {ARM64}" in text


def test_two_driver_versions_are_refused_and_named(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.store(ARM64, driver="535.247.01", tag=f"535-{KERNEL}-debian12")
    site.store(AMD64)
    assert run(["index", *site.given, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    check_document("index", document)
    (failed,) = document["failed"].values()
    assert "535.261.03 on linux/amd64, 535.247.01 on linux/arm64" in failed["brief"]


def test_nothing_there_is_no_alias_and_no_failure(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["index", *site.given]) == 0
    assert capsys.readouterr().out == ""


def test_a_cell_that_nobody_could_have_built_is_told_with_its_verdict(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    (site.folder / "site.lock.json").write_text(dump_lock(Lock()))
    (site.folder / "site.yaml").write_text(TWO_ARCHS)
    words = [*site.given[:-1], "debian12-amd64-535.261.03-jit"]
    assert run(["index", *words]) == 1
    assert "debian12-amd64-535.261.03-jit  unknown  " in capsys.readouterr().err


def test_what_is_there_is_covered_and_what_others_wrote_stays(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "covered.json"
    theirs = image(os="rhel9", cell="rhel9-amd64-535.309.01-5.14.0-1.el9.x86_64", digest="sha256:9")
    merge_covered(file, {"5.14.0-1.el9.x86_64": [theirs]})
    digest = site.store(AMD64)
    (tmp_path / "tested").write_text(f"{AMD64}\n")
    assert run(["index", *site.given, "--covered", str(file), "--tested", str(tmp_path / "tested")]) == 0
    document = json.loads(file.read_text())
    check_document("covered", document)
    assert document["kernels"]["5.14.0-1.el9.x86_64"] == [theirs]
    (mine,) = document["kernels"][KERNEL]
    assert (mine["cell"], mine["digest"], mine["tested"]) == (AMD64, digest, True)
    assert mine["tag"] == f"{site.registry}/driver:535-{KERNEL}-debian12"
    assert mine["image"].startswith(f"{site.registry}/driver:535.261.03-{KERNEL}-debian12-r")
    site.store(ARM64)
    assert run(["index", *site.given, "--covered", str(file)]) == 0
    again = json.loads(file.read_text())["kernels"][KERNEL]
    assert [(one["arch"], one["tested"]) for one in again] == [("amd64", True), ("arm64", False)]


def image(**changes: str) -> CoveredImage:
    made: CoveredImage = {
        "os": "debian12",
        "arch": "amd64",
        "driver": "535.261.03",
        "branch": "535",
        "cell": AMD64,
        "tag": "registry.site/driver:535",
        "image": "registry.site/driver:535-r1",
        "digest": "sha256:1",
        "tested": False,
    }
    return {**made, **changes}  # type: ignore[typeddict-item]


def test_a_test_counts_for_the_image_that_passed_it(tmp_path: Path) -> None:
    file = tmp_path / "covered.json"
    merge_covered(file, {KERNEL: [{**image(), "tested": True}]})
    kept = merge_covered(file, {KERNEL: [image()]})
    assert [one["tested"] for one in kept["kernels"][KERNEL]] == [True]
    other = merge_covered(file, {KERNEL: [image(digest="sha256:2")]})
    assert [(one["digest"], one["tested"]) for one in other["kernels"][KERNEL]] == [("sha256:2", False)]


@pytest.mark.parametrize(
    "text", ["{", '{"schema": 2, "kernels": {}}', '{"schema": 1, "kernels": {"a": [{}]}}']
)
def test_a_damaged_list_is_never_made_anew(tmp_path: Path, text: str) -> None:
    file = tmp_path / "covered.json"
    file.write_text(text)
    with pytest.raises(InputError, match="no list of covered kernels"):
        merge_covered(file, {KERNEL: [image()]})
    assert file.read_text() == text
