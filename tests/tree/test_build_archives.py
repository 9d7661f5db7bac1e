"""Which image is built from which archive on disk."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_build.advice import Given
from driverforge_build.app.build import archive_folders
from driverforge_build.matrix import load_matrix
from driverforge_build.render.context import BuildContext, driver_contexts
from driverforge_core.errors import UsageError
from support.samples.synthetic import all_cells, synthetic_lock

CONTENT = b"an archive of NVIDIA's"


def contexts() -> list[BuildContext]:
    """Two images of one archive, one of another, one of none."""
    matrix, digest = load_matrix(), hashlib.sha256(CONTENT).hexdigest()
    cells = {cell.key: cell for cell in all_cells(matrix)}
    mine = [cells[f"{system}-amd64-580.178.04-jit"] for system in ("debian12", "debian13")]
    pinned = [
        replace(cell, driver=cell.driver.model_copy(update={"sha256": {"amd64": digest}})) for cell in mine
    ]
    others = [cells[f"debian12-amd64-{version}-jit"] for version in ("595.91.07", "535.261.03")]
    return list(driver_contexts([*pinned, *others], synthetic_lock(matrix), given=Given()))


def test_images_that_want_the_files_sha256_get_it_whatever_its_name(tmp_path: Path) -> None:
    (file := tmp_path / "mine").write_bytes(CONTENT)
    found = archive_folders([file], contexts(), tmp_path / "archives")
    assert sorted(found) == ["debian12-amd64-580.178.04-jit", "debian13-amd64-580.178.04-jit"]
    (folder,) = set(found.values())
    assert [path.name for path in folder.iterdir()] == ["driver"]
    assert (folder / "driver").stat().st_ino == file.stat().st_ino
    again = archive_folders([file], contexts(), tmp_path / "archives")
    assert (again, (folder / "driver").read_bytes()) == (found, CONTENT)


def test_a_file_that_no_image_wants_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"something else")
    with pytest.raises(UsageError, match=r"other: no image that is to be built is made of it") as told:
        archive_folders([tmp_path / "other"], contexts(), tmp_path / "archives")
    assert hashlib.sha256(b"something else").hexdigest() in told.value.details[0]
