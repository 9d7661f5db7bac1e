"""The life of `driverforge generate`: from matrix and lock to a folder for each image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from driverforge_build.app.knowledge import Selection
from driverforge_build.lock.file import load_lock
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import Cell, load_matrix
from driverforge_build.matrix.select import check_named, select_cells
from driverforge_build.plan.rows import all_cells
from driverforge_build.render.bake import write_all
from driverforge_build.render.context import BuildContext, driver_contexts, toolkit_contexts
from driverforge_build.render.needs import missing_pins
from driverforge_build.render.toolkit import split, toolkit_cells


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """The contexts that were written, and the cells that were left out, each with the pins that it lacks."""

    contexts: tuple[BuildContext, ...]
    left_out: Mapping[str, tuple[str, ...]]


def generate(selection: Selection, output: Path, *, vcs_ref: str, writing: bool) -> Generated:
    """Write OUTPUT/<cell>/ for each cell, and one bake file. Raises UsageError, InputError, StorageFailed."""
    given, skip = selection.given, selection.skip
    matrix = load_matrix(given.matrix)
    lock = load_lock(given.lock, matrix=given.matrix, select=selection.select, skip=skip)
    toolkits, drivers = split(selection.select)
    found = (
        () if toolkits and not drivers else select_cells(all_cells(matrix, lock), select=drivers, skip=skip)
    )
    cells, left_out = renderable(found, lock, named=bool(drivers))
    wanted = toolkit_cells(matrix, select=toolkits, skip=skip)
    check_named("--base", given.bases, {cell.os.id for cell in cells} | {cell.row.system for cell in wanted})
    contexts = driver_contexts(cells, lock, given=given)
    contexts += toolkit_contexts(wanted, matrix, lock, given=given)
    if writing:
        write_all(contexts, output, vcs_ref=vcs_ref)
    return Generated(contexts=contexts, left_out=left_out)


def renderable(
    cells: Iterable[Cell], lock: Lock, *, named: bool
) -> tuple[tuple[Cell, ...], dict[str, tuple[str, ...]]]:
    """The cells to render, and those that are left out with what each of them lacks.

    Cells that the matrix excludes are not rendered. Where the user named no cells, only those count whose OS
    and architecture are in the lock, and a cell with a download that has no pin is left out. If that leaves
    none, all of them are returned: rendering then says what to do.
    """
    wanted = tuple(
        cell for cell in cells if cell.excluded is None and (named or lock.target(cell.os.id, cell.arch))
    )
    if named:
        return wanted, {}
    missing = {cell.key: _lacking(cell, lock) for cell in wanted}
    left = tuple(cell for cell in wanted if not missing[cell.key])
    return (left, {key: lacking for key, lacking in missing.items() if lacking}) if left else (wanted, {})


def _lacking(cell: Cell, lock: Lock) -> tuple[str, ...]:
    return (
        ("payload `image` cannot be built by this version",)
        if cell.driver.payload == "image"
        else tuple(missing_pins(cell, lock))
    )
