"""What a command is about: the cells and the toolkit images that --select and --skip leave."""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_build.app.knowledge import Knowledge, Selection
from driverforge_build.matrix import Cell
from driverforge_build.matrix.select import check_named
from driverforge_build.render.toolkit import ToolkitCell, split, toolkit_cells


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Cells in their order. A toolkit image has no verdict, so it is no cell of a plan."""

    cells: tuple[Cell, ...]
    toolkits: tuple[ToolkitCell, ...]

    @property
    def systems(self) -> frozenset[str]:
        return frozenset({cell.os.id for cell in self.cells} | {cell.row.system for cell in self.toolkits})


def choose(known: Knowledge, selection: Selection) -> Chosen:
    """What --select and --skip leave; toolkit images only where a glob is theirs.

    Raises UsageError where a glob matches nothing, or --base names an OS that none of it is of.
    """
    toolkits, drivers = split(selection.select)
    chosen = Chosen(
        cells=() if toolkits and not drivers else known.cells(drivers, selection.skip),
        toolkits=toolkit_cells(known.matrix, select=toolkits, skip=selection.skip),
    )
    check_named("--base", selection.given.bases, chosen.systems)
    return chosen
