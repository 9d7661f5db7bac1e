"""Why the matrix has no cell of an id, as `explain`, `plan --select` and `lock --select` say it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.absent import why_absent
from driverforge_build.matrix.expand import jit_cells
from driverforge_build.matrix.select import near_ids, select_cells
from driverforge_core.errors import UsageError

MATRIX = load_matrix()
UBUNTU = "ubuntu26.04-amd64-580.173.02-jit"
"""What a cluster of NVIDIA's operator asks for (NVIDIA/aicr issue 2192)."""


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (UBUNTU, "ubuntu26.04 has no row of driver 580.173.02 for amd64: it has 595.91.07 (jit), "),
        ("fedora42-amd64-580.178.04-jit", "no row of `systems` is fedora42: it has debian12, "),
        (
            "ubuntu26.04-amd64-580.178.04-jit",
            "driver 580.178.04 of ubuntu26.04 has no jit images: it has 580.178.04 (precompiled)",
        ),
        (
            "debian12-amd64-535.261.03-5.10.0-9-cloud-amd64",
            "no series of debian12 has the kernel 5.10.0-9-cloud-amd64: it has 6.1 (6.1.*), 6.12 (6.12.*+deb",
        ),
        (
            "debian12-arm64-535.261.03-6.1.0-50-rpi",
            "debian12 has no flavour rpi for arm64: it has arm64, cloud-arm64",
        ),
        (
            "debian13-amd64-550.163.01-7.2.12+deb13-cloud-amd64",
            "driver 550.163.01 of debian13 takes the series 6.12, not 7",
        ),
        # the rows would have it: the lock decides
        ("debian12-amd64-535.261.03-6.1.0-999-cloud-amd64", ""),
        # no ids
        ("debian99-*", ""),
        ("nonsense", ""),
    ],
)
def test_the_row_that_is_missing_is_named_with_what_there_is(key: str, why: str) -> None:
    assert why_absent(MATRIX, key).startswith(why)
    assert bool(why_absent(MATRIX, key)) == bool(why)


def test_an_architecture_that_a_system_is_not_for() -> None:
    alone = replace(MATRIX, rows=(MATRIX.rows[0].model_copy(update={"archs": ("amd64",)}),))
    told = why_absent(alone, "debian12-arm64-535.261.03-jit")
    assert told == "the row of debian12 is for amd64, not for arm64"


def test_every_cell_that_there_is_has_no_reason_to_be_absent() -> None:
    assert [cell.key for cell in jit_cells(MATRIX) if why_absent(MATRIX, cell.key)] == []


def test_the_nearest_ids_are_of_the_same_system_and_architecture() -> None:
    keys = [cell.key for cell in jit_cells(MATRIX)]
    assert {key.split("-")[0] for key in near_ids(UBUNTU, keys)} == {"ubuntu26.04"}
    assert {key.split("-")[1] for key in near_ids(UBUNTU, keys)} == {"amd64"}
    assert near_ids("fedora42-amd64-580.178.04-jit", keys)


def test_a_selection_of_a_cell_without_a_row_says_which() -> None:
    with pytest.raises(UsageError) as told:
        select_cells(jit_cells(MATRIX), select=[UBUNTU], why_none=lambda glob: [why_absent(MATRIX, glob)])
    assert told.value.details[0].startswith("ubuntu26.04 has no row of driver 580.173.02 for amd64")
    assert "add the row that is missing to a matrix of your own" in told.value.resolution
