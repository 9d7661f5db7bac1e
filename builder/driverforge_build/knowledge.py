"""What a verdict is made from, read once: matrix, lock file, and the registry where one is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from driverforge_build import lock as locks
from driverforge_build import plan as plans
from driverforge_build.advice import Given
from driverforge_build.lock import Lock
from driverforge_build.matrix import Cell, Matrix, load_matrix
from driverforge_build.plan import Plan, Published
from driverforge_build.select import select as select_cells
from driverforge_build.verdict import Judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """The inputs of a plan. `published` is None where no registry is asked."""

    matrix: Matrix
    lock: Lock
    judge: Judge
    published: Published | None

    def cells(self, select: Sequence[str] = (), skip: Sequence[str] = ()) -> tuple[Cell, ...]:
        """The selected cells. Raises UsageError where a glob matches none."""
        return select_cells(plans.all_cells(self.matrix, self.lock), select=select, skip=skip)

    def plan(self, cells: Sequence[Cell]) -> Plan:
        return plans.make_plan(cells, self.judge, self.published)


def read(
    matrix_path: Path | None,
    lock_path: Path,
    *,
    bases: Mapping[str, str],
    registry: str | None,
    select: Sequence[str] = (),
    skip: Sequence[str] = (),
) -> Knowledge:
    """Read matrix and lock. `select` and `skip` only go into the advice of a missing lock's error. Raises InputError, UsageError."""
    matrix, lock = (
        load_matrix(matrix_path),
        locks.load(lock_path, matrix=matrix_path, select=tuple(select), skip=tuple(skip)),
    )
    published = None
    if registry is not None:
        from driverforge_build.published import published_images  # it brings HTTP and templates along

        published = published_images(registry, lock, bases)
    judge = Judge(
        matrix, lock, today=datetime.now(timezone.utc).date(), given=Given(matrix=matrix_path, lock=lock_path)
    )
    return Knowledge(matrix=matrix, lock=lock, judge=judge, published=published)
