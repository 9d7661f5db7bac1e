"""`driverforge index` against a real registry: aliases for all architectures, and what covered.json says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from driverforge_build.cli import run
from driverforge_build.documents.runs import CoveredImage
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import Lock
from driverforge_build.report.covered import merge_covered
from driverforge_core.errors import InputError
from support.jsonschemas import check_document
from support.machines import registry
from support.process import missing
from support.samples.registrysite import AMD64, ARM64, KERNEL, TWO_ARCHS, RegistrySite, registry_site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RegistrySite]:
    if gone := missing("docker-registry", "setpriv"):
        pytest.skip(f"not installed: {', '.join(gone)}")
    with registry_site(tmp_path) as made:
        yield made


def test_an_alias_stands_for_what_is_there_and_then_for_all(
    site: RegistrySite, capsys: pytest.CaptureFixture[str]
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
    site: RegistrySite, capsys: pytest.CaptureFixture[str]
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


def test_two_driver_versions_are_refused_and_named(
    site: RegistrySite, capsys: pytest.CaptureFixture[str]
) -> None:
    site.store(ARM64, driver="535.247.01", tag=f"535-{KERNEL}-debian12")
    site.store(AMD64)
    assert run(["index", *site.given, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    check_document("index", document)
    (failed,) = document["failed"].values()
    assert "535.261.03 on linux/amd64, 535.247.01 on linux/arm64" in failed["brief"]


def test_nothing_there_is_no_alias_and_no_failure(
    site: RegistrySite, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["index", *site.given]) == 0
    assert capsys.readouterr().out == ""


def test_a_registry_that_wants_a_login_says_so_once(
    site: RegistrySite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = site.given[:4]
    with registry.serve(tmp_path / "closed", users={"ci": "nobody says it"}) as closed:
        assert run(["index", *files, "--registry", f"{closed.address}/nvidia"]) == 77
    said = capsys.readouterr().err
    assert said.count("docker login") == 1
    assert "and the same of 1 more" in said


def test_a_cell_that_nobody_could_have_built_is_told_with_its_verdict(
    site: RegistrySite, capsys: pytest.CaptureFixture[str]
) -> None:
    (site.folder / "site.lock.json").write_text(dump_lock(Lock()))
    (site.folder / "site.yaml").write_text(TWO_ARCHS)
    words = [*site.given[:-1], "debian12-amd64-535.261.03-jit"]
    assert run(["index", *words]) == 1
    assert "debian12-amd64-535.261.03-jit  unknown  " in capsys.readouterr().err


def test_what_is_there_is_covered_and_what_others_wrote_stays(site: RegistrySite, tmp_path: Path) -> None:
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


def test_a_newer_driver_behind_the_same_tag_takes_the_older_ones_place(tmp_path: Path) -> None:
    """The operator pulls the tag: that the older image was tested says nothing of what it gets now."""
    file = tmp_path / "covered.json"
    arm64 = image(arch="arm64", digest="sha256:3")
    theirs = image(tag="registry.other/driver:535", driver="535.247.01")
    merge_covered(file, {KERNEL: [{**image(), "tested": True}, arm64, theirs]})
    newer = image(driver="535.309.01", image="registry.site/driver:535-r2", digest="sha256:2")
    kept = merge_covered(file, {KERNEL: [newer]})
    assert kept["kernels"][KERNEL] == [theirs, newer, arm64]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"schema": 2, "kernels": {}}',
        '{"schema": 1, "kernels": {"a": [{}]}}',
        '{"schema": 1, "kernels": {"a": [], "a": []}}',
    ],
)
def test_a_damaged_list_is_never_made_anew(tmp_path: Path, text: str) -> None:
    file = tmp_path / "covered.json"
    file.write_text(text)
    with pytest.raises(InputError, match="no list of covered kernels"):
        merge_covered(file, {KERNEL: [image()]})
    assert file.read_text() == text
