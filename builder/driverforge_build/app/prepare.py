"""What build and push begin with: cells chosen and judged, and the contexts of those that are to be built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from driverforge_build.app.knowledge import LookupFor, Selection, read_knowledge
from driverforge_build.app.runner import CellReport
from driverforge_build.matrix import Cell, OsRow
from driverforge_build.matrix.select import check_named
from driverforge_build.plan.rows import Plan, Planned
from driverforge_build.render.context import BuildContext, driver_contexts, toolkit_contexts
from driverforge_build.render.toolkit import split, toolkit_cells
from driverforge_build.verdict import State
from driverforge_core.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is to be done: the plan of the selected cells, and the contexts of those that are to be built.

    `mirrors` are those of the user and of the matrix. A toolkit image has no verdict, so it is a context
    without a row in the plan.
    """

    plan: Plan
    contexts: tuple[BuildContext, ...]
    mirrors: Mapping[str, str]

    @property
    def unbuildable(self) -> tuple[Planned, ...]:
        """The selected cells that are blocked or unknown."""
        return tuple(row for row in self.plan.rows if row.verdict.state in {State.BLOCKED, State.UNKNOWN})


def prepare(
    selection: Selection, *, mirrors: Mapping[str, str] | None = None, lookup_for: LookupFor | None = None
) -> Prepared:
    """Plan and render, writing nothing. Raises UsageError, InputError.

    `mirrors` maps OS or OS/SUITE to an address. They serve the downloads of a build, and do not change what
    is built.
    """
    known = read_knowledge(selection, lookup_for)
    given, named = selection.given, mirrors or {}
    toolkits, drivers = split(selection.select)
    cells = () if toolkits and not drivers else known.cells(drivers, selection.skip)
    wanted = toolkit_cells(known.matrix, select=toolkits, skip=selection.skip)
    oses = {cell.os.id for cell in cells} | {cell.row.system for cell in wanted}
    check_named("--base", given.bases, oses)
    check_named("--mirror", named, oses)
    plan = known.plan(cells)
    due = plan.to_build()
    check_mirrors(named, due)
    return Prepared(
        plan=plan,
        contexts=(
            *driver_contexts(due, known.lock, given=given),
            *toolkit_contexts(wanted, known.matrix, known.lock, given=given),
        ),
        mirrors={**row_mirrors(row for row in known.matrix.rows if row.id in oses), **named},
    )


def row_mirrors(rows: Iterable[OsRow]) -> dict[str, str]:
    """The mirrors that the matrix names, for the OSes whose builds can use one."""
    return {row.id: row.mirror for row in rows if row.mirror and row.package_manager == "apt"}


def check_mirrors(mirrors: Mapping[str, str], cells: tuple[Cell, ...]) -> None:
    """Raises UsageError for a mirror that a build could not use.

    Only apt reads it: the repositories of dnf and zypper are configured in the base image.
    """
    for cell in cells:
        if cell.os.package_manager != "apt" and any(key.partition("/")[0] == cell.os.id for key in mirrors):
            raise UsageError(
                f"--mirror works with apt only; {cell.os.id} uses {cell.os.package_manager}",
                resolution=f"give a base image whose repositories are your site's: --base {cell.os.id}=REF",
            )


def exit_status(plan: Plan, reports: tuple[CellReport, ...], select: tuple[str, ...]) -> int:
    """The exit status of `build` and `push`.

    1 where a build failed, else 75 where the registry did not answer, else 1 where a cell that was named in
    full is blocked or unknown, else 0.
    """
    named = {row.key: row.verdict.state for row in plan.rows if row.key in select}
    if any(report.error or report.image is None for report in reports):
        return 1
    if plan.degraded:
        return 75
    return int(any(state in {State.BLOCKED, State.UNKNOWN} for state in named.values()))
