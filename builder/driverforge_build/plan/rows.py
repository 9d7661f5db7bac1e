"""The plan: each cell of a matrix and lock with its verdict.

Rows are values; text is made when somebody reads it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from driverforge_build.lock.pins import Lock
from driverforge_build.matrix.expand import Cell, flavour_of, jit_cells, kernel_cells
from driverforge_build.matrix.globs import glob_set
from driverforge_build.matrix.load import Matrix
from driverforge_build.verdict.decide import Judge
from driverforge_build.verdict.verdicts import State, Verdict, with_presence
from driverforge_core.cell import CellId
from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease
from driverforge_oci.presence import ASKED_AT_ONCE, Presence

ImageLookup = Callable[[Cell], tuple[str, Presence]]
"""Asks a registry whether it has the image of a cell made from the inputs of now: the reference asked for,
and the answer.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A cell, with the module types that its image is to have, and its verdict."""

    cell: Cell
    verdict: Verdict

    @property
    def key(self) -> str:
        return self.cell.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rows: tuple[Planned, ...]

    def count(self) -> Counter[State]:
        return Counter(row.verdict.state for row in self.rows)

    def to_build(self) -> tuple[Cell, ...]:
        return tuple(row.cell for row in self.rows if row.verdict.state is State.BUILD)

    @property
    def degraded(self) -> bool:
        """Whether a registry could not be asked: the same run may end differently later."""
        return any(row.verdict.unanswered for row in self.rows)


def all_cells(matrix: Matrix, lock: Lock) -> Iterator[Cell]:
    """Every cell of a matrix, excluded ones too: JIT ones, and one for each kernel that the lock knows."""
    kernels = {
        (target.os, target.arch): sorted(
            (KernelRelease.parse(text) for text in target.kernels), key=lambda release: release.sort_key
        )
        for target in lock.targets.values()
    }
    yield from jit_cells(matrix, excluded=True)
    yield from kernel_cells(matrix, kernels, excluded=True)


def excluded_by_name(matrix: Matrix, lock: Lock, select: Sequence[str]) -> Iterator[Cell]:
    """Cells that `select` names in full, of kernels whose flavour no row has and the matrix excludes.

    A lock seldom has such a kernel: one that was made before the exclusion. Its cells are among `all_cells`.
    """
    refused = glob_set(tuple(flavour for row in matrix.exclusions for flavour in row.flavours))
    kernels: dict[tuple[str, str], list[KernelRelease]] = {}
    locked = {
        (target.os, target.arch, release) for target in lock.targets.values() for release in target.kernels
    }
    for key in dict.fromkeys(select):
        try:
            wanted = CellId.parse(key)
        # a glob
        except InputError:
            continue
        if wanted.kernel is None or not refused(flavour_of(wanted.kernel)):
            continue
        if (wanted.os.key, wanted.arch, wanted.kernel.text) not in locked:
            kernels.setdefault((wanted.os.key, wanted.arch), []).append(wanted.kernel)
    cells = kernel_cells(matrix, kernels, excluded=True) if kernels else ()
    yield from (cell for cell in cells if cell.series is None and cell.key in select)


def excluded_flavours(matrix: Matrix, glob: str) -> list[str]:
    """Why there is no cell for a glob that names a flavour which the matrix excludes: a line an exclusion."""
    words = {*re.split(r"[-+*?]", glob)}
    return [
        f"{matrix.origin('exclusions', row.id)}: exclusion {row.id}: {row.reason}"
        for row in matrix.exclusions
        if words & {flavour.strip("-*") for flavour in row.flavours}
    ]


def make_plan(cells: Iterable[Cell], judge: Judge, published: ImageLookup | None = None) -> Plan:
    """Verdicts for cells, in their order.

    `published` is asked about cells that would be built, several at a time.
    """
    rows = [
        Planned(cell=verdict.narrowed(cell), verdict=verdict)
        for cell, verdict in ((cell, judge.verdict(cell)) for cell in cells)
    ]
    if published is not None:
        due = [row.cell for row in rows if row.verdict.state is State.BUILD]
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            answers: Mapping[str, tuple[str, Presence]] = dict(
                zip((cell.key for cell in due), pool.map(published, due), strict=True)
            )
        rows = [_answered(row, answers) for row in rows]
    return Plan(rows=tuple(rows))


def _answered(row: Planned, answers: Mapping[str, tuple[str, Presence]]) -> Planned:
    if row.key not in answers:
        return row
    reference, answer = answers[row.key]
    return Planned(cell=row.cell, verdict=with_presence(row.verdict, answer, reference))
