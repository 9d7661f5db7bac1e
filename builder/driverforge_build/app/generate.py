"""The life of `driverforge generate`: from matrix and lock to a folder for each image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driverforge_build.app.choice import Chosen, choose
from driverforge_build.app.knowledge import Knowledge, Selection, lockable, read_knowledge
from driverforge_build.matrix import Cell
from driverforge_build.render.bake import write_all
from driverforge_build.render.context import BuildContext, driver_contexts, toolkit_contexts
from driverforge_build.render.needs import missing_pins
from driverforge_build.render.toolkit import split
from driverforge_build.verdict import State
from driverforge_core.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """The contexts that were written, and the cells that were left out, each with what stands against it."""

    contexts: tuple[BuildContext, ...]
    left_out: Mapping[str, tuple[str, ...]]


def generate(selection: Selection, output: Path, *, vcs_ref: str, writing: bool) -> Generated:
    """Write OUTPUT/<cell>/ for each cell, and one bake file.

    Raises UsageError (also where nothing is left to write), InputError, StorageFailed.
    """
    given = selection.given
    known = read_knowledge(selection)
    chosen = choose(known, selection)
    cells, left_out = _renderable(known, chosen, named=bool(split(selection.select)[1]))
    if not (cells or chosen.toolkits):
        raise _nothing(known, selection, left_out)
    contexts = (
        *driver_contexts(cells, known.lock, given=given),
        *toolkit_contexts(chosen.toolkits, known.matrix, known.lock, given=given),
    )
    if writing:
        write_all(contexts, output, vcs_ref=vcs_ref)
    return Generated(contexts=contexts, left_out=left_out)


def _renderable(
    known: Knowledge, chosen: Chosen, *, named: bool
) -> tuple[tuple[Cell, ...], dict[str, tuple[str, ...]]]:
    """The cells to render, and those that are left out with what stands against each.

    What the plan blocks is left out. Where the user named no cells, only those count whose OS and
    architecture are in the lock, and a cell with a download that has no pin is left out. If that leaves
    none, all that are not blocked are returned: rendering then says what to do.
    """
    lock = known.lock
    counted = [cell for cell in chosen.cells if named or lock.target(cell.os.id, cell.arch)]
    rows = known.plan(counted).rows
    blocked: dict[str, tuple[str, ...]] = {
        row.key: (row.verdict.reason,) for row in rows if row.verdict.state is State.BLOCKED
    }
    wanted = tuple(row.cell for row in rows if row.key not in blocked)
    missing = {} if named else {cell.key: tuple(missing_pins(cell, lock)) for cell in wanted}
    whole = tuple(cell for cell in wanted if not missing.get(cell.key))
    if not whole:
        return wanted, blocked
    return whole, blocked | {key: lacking for key, lacking in missing.items() if lacking}


def _nothing(known: Knowledge, selection: Selection, left_out: Mapping[str, tuple[str, ...]]) -> UsageError:
    if not left_out:
        select, skip = lockable(known.matrix, selection)
        return UsageError(
            f"{selection.given.lock} holds no system of the matrix; nothing was written",
            resolution=selection.given.command("lock", select=select, skip=skip),
        )
    return UsageError(
        "every cell that was asked for is blocked; nothing was written",
        details=[f"{key}: {'; '.join(reasons)}" for key, reasons in left_out.items()],
        resolution="select other cells; `driverforge explain` shows the evidence for one of these",
    )
