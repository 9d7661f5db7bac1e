"""The operator's image: its wheels against their lock, what is in it, and the Dockerfile as a golden file."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.advice import Given, Selection
from driverforge_build.app.knowledge import Knowledge
from driverforge_build.app.prepare import choose
from driverforge_build.attest.sbom import sbom
from driverforge_build.discover.targets import wanted_targets
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.programcells import OperatorCell, operator_images, select_images
from driverforge_build.render.bake import immutable_tag_of, local_reference
from driverforge_build.render.context import BuildContext, context_of
from driverforge_build.render.library import THIRD_PARTY
from driverforge_build.render.operator import operator_specs
from driverforge_build.verdict.decide import Judge
from driverforge_core import __version__
from driverforge_core.errors import InputError, UsageError
from driverforge_oci.reference import Reference
from driverforge_operator.__main__ import PACKAGES
from support.samples.synthetic import synthetic_lock

GOLDEN = Path(__file__).parents[1] / "golden/operator/Dockerfile"
MATRIX = load_matrix()
LOCK = synthetic_lock(MATRIX)
WHEEL = "click-8.5.1-py3-none-any.whl"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A wheel with a package, a compiled module, and a program that pip would put into bin/."""
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as archive:
        for name in ("click/__init__.py", "click/_speed.so", "click-8.5.1.dist-info/licenses/LICENSE"):
            archive.writestr(name, name)
        archive.writestr("click-8.5.1.data/scripts/click", "#!python")
    return tmp_path


def cell(wheels: Path) -> OperatorCell:
    sha256 = hashlib.sha256((wheels / WHEEL).read_bytes()).hexdigest()
    (found,) = select_images(operator_images(), select=["operator-*-amd64"])
    return replace(found, wheels={WHEEL: sha256})


def context(wheels: Path) -> BuildContext:
    given = Given(wheels={"amd64": str(wheels)})
    (image,) = operator_specs([cell(wheels)], MATRIX, LOCK, given=given)
    return context_of(image, resources.templates())


def test_the_dockerfile_is_the_golden_one(wheels: Path) -> None:
    text = context(wheels).entries["Dockerfile"].content.decode()
    if os.environ.get("DRIVERFORGE_UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), (
        "if this is wanted: DRIVERFORGE_UPDATE_GOLDEN=1, and review the difference"
    )
    assert "USER 65532:65532" in text


def test_it_holds_the_operator_and_its_wheels_and_nothing_else(wheels: Path) -> None:
    entries = context(wheels).entries
    packages = {name.split("/")[4] for name in entries if name.startswith("root/opt/driverforge/lib/")}
    own = {"driverforge_core", "driverforge_oci", "driverforge_kube", "driverforge_operator"}
    assert packages == {*own, "click", "click-8.5.1.dist-info"}
    assert "root/opt/driverforge/lib/click/_speed.so" in entries
    assert "root/opt/driverforge/lib/driverforge_operator/operands/manifests/driver.yaml" in entries
    assert {name for name in entries if name.startswith("root/usr/local/bin/")} == {
        "root/usr/local/bin/driverforge-operator"
    }
    assert (
        b"from driverforge_operator.cli import main"
        in entries["root/usr/local/bin/driverforge-operator"].content
    )
    pinned = entries["pins/userspace"].content
    assert b" python3 " in pinned
    assert b" gcc" not in pinned


def test_its_tags(wheels: Path) -> None:
    made = context(wheels)
    assert immutable_tag_of(made) == f"v{__version__}-r{made.revision}"
    assert made.image.alias_tag == f"v{__version__}"
    assert local_reference(made).startswith("localhost/driverforge/driverforge-operator:v")


def test_a_folder_without_the_locked_wheels_is_refused_with_every_one(wheels: Path, tmp_path: Path) -> None:
    other = replace(cell(wheels), wheels={WHEEL: "0" * 64, "yaml-1-py3-none-any.whl": "1" * 64})
    with pytest.raises(InputError, match="operator images cannot be made") as caught:
        operator_specs([other], MATRIX, LOCK, given=Given(wheels={"amd64": str(tmp_path)}))
    changed, missing = caught.value.details
    assert "the lock says 0000" in changed
    assert "has no yaml-1-py3-none-any.whl" in missing
    with pytest.raises(InputError) as caught:
        operator_specs([other], MATRIX, LOCK, given=Given())
    assert "--operator-wheels amd64=DIR" in caught.value.resolution


def test_without_pins_of_its_system_it_says_how_to_get_them(wheels: Path) -> None:
    empty = Lock()
    with pytest.raises(InputError, match="operator images cannot be made") as caught:
        operator_specs([cell(wheels)], MATRIX, empty, given=Given(wheels={"amd64": str(wheels)}))
    assert "driverforge lock --select 'debian12-amd64-*'" in caught.value.resolution


def test_both_architectures_lock_what_the_operator_needs() -> None:
    needed = {"PyYAML" if name == "yaml" else name for name in PACKAGES}
    images = operator_images()
    assert [image.arch for image in images] == ["amd64", "arm64"]
    for image in images:
        assert {name.lower() for name in needed} <= {name.split("-")[0].lower() for name in image.wheels}
    # the same versions of everything
    first, second = ({tuple(name.split("-")[:2]) for name in image.wheels} for image in images)
    assert first == second


def test_which_globs_are_the_operators() -> None:
    assert select_images(operator_images(), select=[]) == ()
    with pytest.raises(UsageError):
        select_images(operator_images(), select=["operator-9*"])


def test_a_glob_of_the_operator_chooses_no_driver() -> None:
    known = Knowledge(
        matrix=MATRIX, lock=LOCK, judge=Judge(MATRIX, LOCK, today=date(2026, 1, 1)), lookup=None
    )
    chosen = choose(known, Selection(select=("operator-*-arm64",)))
    assert (chosen.cells, chosen.toolkits, [one.arch for one in chosen.operators]) == ((), (), ["arm64"])
    assert chosen.systems == {"debian12"}


def test_lock_finds_its_system() -> None:
    found = wanted_targets(MATRIX, select=["operator-*-arm64"], skip=[])
    assert [(row.id, arch) for row, arch in found] == [("debian12", "arm64")]


def test_its_bill_of_materials_has_the_wheels_and_no_driver(wheels: Path) -> None:
    place = Reference.parse("r.example.com/o@sha256:" + "0" * 64)
    made = context(wheels)
    assert not any(
        path.startswith(f"root/opt/driverforge/lib/{name}") for path in made.entries for name in THIRD_PARTY
    )
    parts = json.loads(sbom(made, place))["components"]
    python = {one["purl"] for one in parts if one.get("purl", "").startswith("pkg:pypi/")}
    assert python == {f"pkg:pypi/driverforge@{__version__}", "pkg:pypi/click@8.5.1"}
    assert "NVIDIA" not in json.dumps(parts)
