"""What a verdict is made from, read once: matrix, lock file, and the registry where one is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path

from driverforge_build.advice import Given, Selection
from driverforge_build.lock.file import load_lock
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import Cell, Matrix, load_matrix
from driverforge_build.matrix.absent import why_absent
from driverforge_build.matrix.select import select_cells
from driverforge_build.nvidia.advisories import read_advisories
from driverforge_build.plan.rows import (
    ImageLookup,
    Plan,
    all_cells,
    excluded_by_name,
    excluded_flavours,
    make_plan,
)
from driverforge_build.verdict.decide import Judge
from driverforge_core.errors import UsageError

LookupFor = Callable[[Lock], ImageLookup]
"""Makes the question to a registry, which needs the lock: the tag that is asked for is made from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What a verdict is made from. `lookup` is None where no registry is asked."""

    matrix: Matrix
    lock: Lock
    judge: Judge
    lookup: ImageLookup | None

    def cells(self, select: Sequence[str] = (), skip: Sequence[str] = ()) -> tuple[Cell, ...]:
        """The selected cells. Raises UsageError where a glob matches none."""
        cells = chain(all_cells(self.matrix, self.lock), excluded_by_name(self.matrix, self.lock, select))
        return select_cells(cells, select=select, skip=skip, why_none=self._why_none)

    def _why_none(self, glob: str) -> Iterator[str]:
        yield from excluded_flavours(self.matrix, glob)
        if why := why_absent(self.matrix, glob):
            yield why

    def plan(self, cells: Sequence[Cell]) -> Plan:
        return make_plan(cells, self.judge, self.lookup)


def read_knowledge(
    selection: Selection, lookup_for: LookupFor | None = None, *, advisories: Sequence[Path] = ()
) -> Knowledge:
    """Read matrix and lock, and what `advisories` say of drivers. Raises InputError.

    `select` and `skip` stand in the advice where the lock file is missing; they choose nothing here.
    """
    given = selection.given
    matrix = load_matrix(given.matrix)
    select, skip = ((), ()) if given.lock.exists() else lockable(matrix, selection)
    lock = load_lock(given.lock, matrix=given.matrix, select=select, skip=skip)
    return Knowledge(
        matrix=matrix,
        lock=lock,
        judge=Judge(
            matrix,
            lock,
            today=datetime.now(timezone.utc).date(),
            given=Given(matrix=given.matrix, lock=given.lock, bases=given.bases),
            advisories=read_advisories(advisories),
        ),
        lookup=lookup_for(lock) if lookup_for else None,
    )


def lockable(matrix: Matrix, selection: Selection) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What of a selection `lock` takes: all of it, or nothing where it would refuse that."""
    # discovery takes a while to import, and most commands find a lock file
    from driverforge_build.discover.targets import wanted_targets

    try:
        wanted_targets(matrix, select=selection.select, skip=selection.skip)
    except UsageError:
        return (), ()
    return selection.select, selection.skip
