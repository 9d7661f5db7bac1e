"""Which architectures one alias stands for, found in matrix and lock."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from driverforge_build.advice import Given
from driverforge_build.app.prepare import families
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import Cell
from driverforge_build.matrix.load import parse_matrix
from driverforge_build.plan.rows import all_cells
from driverforge_build.render.context import driver_contexts
from support.samples.locks import kernel, sample_driver, target
from support.samples.sampledebian import MATRIX

TEXT = MATRIX.replace("archs: [amd64]\n", "archs: [amd64, arm64]\n").replace(
    "{amd64: [cloud-amd64]}", "{amd64: [generic], arm64: [generic, 64k]}"
)
BOTH, ALONE = "6.1.0-50-generic", "6.1.0-50-64k"


def lock(*, arm64_driver: bool = True) -> Lock:
    return Lock(
        targets={
            "debian12-amd64": target(kernel(BOTH), drivers={"535.261.03": sample_driver()}),
            "debian12-arm64": target(
                *map(kernel, (BOTH, ALONE)),
                arch="arm64",
                drivers={"535.261.03": sample_driver()} if arm64_driver else {},
            ),
        }
    )


def family(locked: Lock, key: str) -> list[str]:
    matrix = parse_matrix(TEXT.encode(), name="site.yaml")
    cells: Iterable[Cell] = list(all_cells(matrix, locked))
    (mine,) = driver_contexts([cell for cell in cells if cell.key == key], locked, given=Given())
    found = families(cells, (), locked, given=Given())(mine)
    assert {context.image.alias_tag for context in found} == {mine.image.alias_tag}
    return sorted(context.image.id for context in found)


@pytest.mark.parametrize("arch", ["amd64", "arm64"])
@pytest.mark.parametrize("kernel", [BOTH, "jit"])
def test_all_architectures_of_a_kernel_are_one_family(arch: str, kernel: str) -> None:
    assert family(lock(), f"debian12-{arch}-535.261.03-{kernel}") == [
        f"debian12-amd64-535.261.03-{kernel}",
        f"debian12-arm64-535.261.03-{kernel}",
    ]


def test_a_kernel_of_one_architecture_has_no_family() -> None:
    mine = f"debian12-arm64-535.261.03-{ALONE}"
    assert family(lock(), mine) == [mine]


def test_what_has_no_pins_cannot_have_been_built_and_is_no_member() -> None:
    mine = f"debian12-amd64-535.261.03-{BOTH}"
    assert family(lock(arm64_driver=False), mine) == [mine]
