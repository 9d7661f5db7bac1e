"""What each row asks of repositories, as plain files that a person can review, and that no name escapes them.

The files are tests/golden/pins/<os>-<arch>.txt, what `driverforge matrix packages` prints.
DRIVERFORGE_UPDATE_GOLDEN=1 writes them anew; read the difference before committing it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from driverforge_build.matrix import OsRow, load_matrix
from driverforge_build.matrix.asked import asked_of_repositories
from driverforge_build.matrix.fields import Arch
from support.nonsense import spoilt, values

MATRIX = load_matrix()
GOLDEN = Path(__file__).parents[1] / "golden" / "pins"
UPDATE = bool(os.environ.get("DRIVERFORGE_UPDATE_GOLDEN"))
PAGES = {f"{row.id}-{arch}": (row, arch) for row in MATRIX.rows for arch in row.archs}


def is_golden(row: OsRow, arch: Arch) -> bool:
    return asked_of_repositories(MATRIX, row, arch) == (GOLDEN / f"{row.id}-{arch}.txt").read_text()


@pytest.mark.parametrize("name", PAGES)
def test_what_a_row_asks_of_repositories_is_what_was_reviewed(name: str) -> None:
    row, arch = PAGES[name]
    if UPDATE:
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / f"{name}.txt").write_text(asked_of_repositories(MATRIX, row, arch))
    assert is_golden(row, arch), "if this is wanted: DRIVERFORGE_UPDATE_GOLDEN=1, and review the difference"


def test_no_page_is_left_of_a_row_that_is_gone() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(PAGES)


@pytest.mark.parametrize("key", [row.id for row in MATRIX.rows])
def test_nonsense_in_any_value_of_a_row_turns_a_test_red(key: str) -> None:
    row = MATRIX.row(key)
    assert row is not None
    whole = row.model_dump()
    changed = {path: spoilt(whole, path) for path, _ in values(whole)}
    assert len(changed) > 50
    assert [path for path, data in changed.items() if not turns_red(key, data)] == []


def turns_red(key: str, data: Mapping[str, Any]) -> bool:
    """Whether the loader refuses a row, or one of the tests above would see it."""
    try:
        row = OsRow.model_validate({**data, "id": key})
    except ValidationError:
        return True
    return data["id"] != key or not all(is_golden(row, arch) for arch in row.archs)
