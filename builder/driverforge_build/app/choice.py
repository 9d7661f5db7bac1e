"""What a command is about: the cells, toolkit and operator images that --select and --skip leave."""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_build.advice import Selection
from driverforge_build.app.knowledge import Knowledge
from driverforge_build.matrix import Cell
from driverforge_build.matrix.programs import (
    OperatorCell,
    ToolkitCell,
    operator_images,
    select_images,
    split_globs,
    toolkit_images,
)
from driverforge_build.matrix.select import check_named


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Cells in their order. Toolkit and operator images have no verdict, so they are no cells of a plan."""

    cells: tuple[Cell, ...]
    toolkits: tuple[ToolkitCell, ...]
    operators: tuple[OperatorCell, ...]

    @property
    def systems(self) -> frozenset[str]:
        others = {cell.system for cell in self.toolkits} | {cell.system for cell in self.operators}
        return frozenset({cell.os.id for cell in self.cells} | others)


def choose(known: Knowledge, selection: Selection) -> Chosen:
    """What --select and --skip leave; toolkit and operator images only where a glob is theirs.

    Raises UsageError where a glob matches nothing, or --base names an OS that none of it is of.
    """
    toolkits, operators, drivers = split_globs(selection.select)
    chosen = Chosen(
        cells=() if (toolkits or operators) and not drivers else known.cells(drivers, selection.skip),
        toolkits=select_images(toolkit_images(known.matrix), select=toolkits, skip=selection.skip),
        operators=select_images(operator_images(), select=operators, skip=selection.skip),
    )
    check_named("--base", selection.given.bases, chosen.systems)
    return chosen
