"""The Dockerfile of every operating system, as plain files that a person can review.

The files are tests/golden/<cell>/Dockerfile. DRIVERFORGE_UPDATE_GOLDEN=1 writes them anew; read the
difference before committing it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.advice import Given
from driverforge_build.lock.pins import Lock, LockedBase
from driverforge_build.matrix import Cell, Matrix, load_matrix
from driverforge_build.matrix.load import parse_matrix
from driverforge_build.render.bake import bake_document
from driverforge_build.render.context import BuildContext, context_of
from driverforge_build.render.spec import image_specs
from support.samples.synthetic import all_cells, synthetic_lock

GOLDEN = Path(__file__).parents[1] / "golden"
CERTIFICATE = GOLDEN / "signed/certificate.pem"
UPDATE = bool(os.environ.get("DRIVERFORGE_UPDATE_GOLDEN"))
MATRIX: Matrix = load_matrix()
LOCK: Lock = synthetic_lock(MATRIX)


def representative(matrix: Matrix) -> tuple[Cell, ...]:
    """For every OS the first cell of each way to make an image; amd64, and arm64 where only that has it."""
    chosen: dict[tuple[object, ...], Cell] = {}
    for cell in sorted(all_cells(matrix), key=lambda cell: -len(cell.module_types)):
        series = cell.series.id if cell.series and cell.arch == "arm64" and "64k" in cell.series.id else ""
        if cell.arch == "amd64" or series:
            chosen.setdefault(
                (cell.os.id, cell.driver.payload, cell.driver.vendor_modules, cell.kernel is None, series),
                cell,
            )
    return tuple(chosen.values())


CELLS = representative(MATRIX)


def rendered(cell: Cell) -> BuildContext:
    (image,) = image_specs([cell], LOCK)
    return context_of(image, resources.templates())


def compare(path: Path, text: str) -> None:
    if UPDATE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"{path} is missing: DRIVERFORGE_UPDATE_GOLDEN=1 writes it"
    assert text == path.read_text(encoding="utf-8"), (
        "if this is wanted: DRIVERFORGE_UPDATE_GOLDEN=1, and review the difference"
    )


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_dockerfile_is_the_golden_one(cell: Cell) -> None:
    compare(GOLDEN / cell.key / "Dockerfile", rendered(cell).entries["Dockerfile"].content.decode())


def test_dockerfile_with_signed_modules_is_the_golden_one() -> None:
    """The stages between compiled modules and the image, and nothing else, are what a certificate adds."""
    cell = next(cell for cell in CELLS if cell.os.id == "debian12" and cell.kernel)
    (image,) = image_specs([cell], LOCK, given=Given(certificate=CERTIFICATE))
    context = context_of(image, resources.templates())
    compare(GOLDEN / "signed/Dockerfile", context.entries["Dockerfile"].content.decode())
    assert context.entries["certificate.der"].content == image.certificate.der if image.certificate else None
    unsigned = rendered(cell).entries.keys()
    assert context.entries.keys() - unsigned == {
        "certificate.der",
        "scripts/attach-signatures",
        "scripts/verify-signatures",
    }


FROM_IMAGES = """\
extends: builtin
keep: {systems: [debian12, rhel9, sles15.7], branches: ["580"]}
systems:
  - {id: debian12, drivers: [{id: "580", payload: image, image: "site/driver:{version}-{os}"}]}
  - {id: rhel9, drivers: [{id: "580", payload: image, image: "site/driver:{version}-{os}"}]}
  - {id: sles15.7, drivers: [{id: "580", payload: image, image: "site/driver:{version}-{os}"}]}
"""


def test_dockerfiles_upon_driver_images_are_the_golden_ones() -> None:
    """JIT and precompiled images, of each family, whose base is a driver image."""
    matrix = parse_matrix(FROM_IMAGES.encode(), name="site.yaml")
    digest = f"sha256:{'5' * 64}"
    targets = [
        replace(
            target,
            images={
                driver.version: LockedBase(reference=driver.image_for(row.id), digest=digest, index=digest)
                for driver in row.drivers
            },
        )
        for row in matrix.rows
        for target in [synthetic_lock(matrix).targets[f"{row.id}-amd64"]]
    ]
    lock = Lock().with_targets(targets)
    chosen = {(cell.os.id, cell.kernel is None): cell for cell in all_cells(matrix) if cell.arch == "amd64"}
    for cell in chosen.values():
        (image,) = image_specs([cell], lock)
        text = context_of(image, resources.templates()).entries["Dockerfile"].content.decode()
        compare(GOLDEN / "image" / cell.key / "Dockerfile", text)
    folders = {path.name for path in (GOLDEN / "image").iterdir()}
    assert folders == {cell.key for cell in chosen.values()}


def test_every_operating_system_has_golden_files_and_no_other_is_left() -> None:
    assert {cell.os.id for cell in CELLS} == {row.id for row in MATRIX.rows}
    others = {"operator", "toolkit", "pins", "signed", "image"}
    assert {path.name for path in GOLDEN.iterdir() if path.is_dir()} == {cell.key for cell in CELLS} | others


def test_bake_file_is_the_golden_one() -> None:
    import json

    cells = [cell for cell in CELLS if cell.os.id in {"debian12", "rhel9"}]
    document = bake_document(
        [rendered(cell) for cell in cells], vcs_ref="0123456789abcdef0123456789abcdef01234567"
    )
    # the inputs' hash covers our own code, which changes with every commit
    for target in document["target"].values():
        if "labels" in target:
            target["labels"]["io.driverforge.inputs"] = "sha256:(inputs)"
            target["tags"] = [tag.rpartition("-r")[0] + "-r(inputs)" for tag in target["tags"]]
    compare(GOLDEN / "docker-bake.json", json.dumps(document, indent=2) + "\n")
