"""The cells that a command is about: those of the matrix, with the kernels that the lock knows, as --select and --skip leave them."""

from __future__ import annotations

from collections.abc import Sequence

from driverforge_build.lock import Lock
from driverforge_build.matrix import Cell, Matrix, jit_cells, kernel_cells
from driverforge_build.select import select as selected
from driverforge_core.kernel import KernelRelease


def chosen_cells(matrix: Matrix, lock: Lock, *, select: Sequence[str], skip: Sequence[str]) -> tuple[Cell, ...]:
    """JIT and precompiled cells that are selected; without `select`, those of the OSes and architectures in the lock.

    Raises UsageError, see `select.select`.
    """
    kernels = {(target.os, target.arch): map(KernelRelease.parse, target.kernels) for target in lock.targets.values()}
    cells = [*jit_cells(matrix), *kernel_cells(matrix, kernels)]
    if not select:
        cells = [cell for cell in cells if lock.target(cell.os.id, cell.arch)]
    return selected(cells, select=select, skip=skip)
