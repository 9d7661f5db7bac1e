"""What build and push begin with: cells chosen and judged, and what the images of some are made from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from urllib.parse import urlsplit

from driverforge_build.advice import Given, Selection
from driverforge_build.app.knowledge import Knowledge, LookupFor, read_knowledge
from driverforge_build.app.runner import CellReport, Result
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import Cell, OsRow
from driverforge_build.matrix.programcells import (
    OperatorCell,
    ToolkitCell,
    operator_images,
    select_images,
    split_globs,
    toolkit_images,
)
from driverforge_build.matrix.select import check_named, mirror_os
from driverforge_build.nvidia.site import MIRROR, check_hosts
from driverforge_build.plan.rows import Plan, Planned
from driverforge_build.plan.shards import ShardWanted
from driverforge_build.publish.upload import FamilyOf
from driverforge_build.render.context import (
    BuildContext,
    driver_contexts,
    operator_contexts,
    toolkit_contexts,
)
from driverforge_build.render.programs import ProgramsSpec
from driverforge_build.render.requirements import missing_pins
from driverforge_build.verdict.verdicts import State
from driverforge_core.errors import UsageError
from driverforge_oci.transport import without_secrets


def families(
    cells: Iterable[Cell], toolkits: Sequence[BuildContext], lock: Lock, *, given: Given
) -> FamilyOf:
    """How the family of an image is found. `cells` are all of the matrix, whichever were selected.

    Those without pins are no members: their images cannot have been built from this lock.
    """
    by_alias: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        if cell.excluded is None:
            by_alias.setdefault(_names(cell), []).append(cell)

    def family_of(context: BuildContext) -> Sequence[BuildContext]:
        image = context.image
        if isinstance(image, ProgramsSpec):
            return [
                one
                for one in toolkits
                if (one.image.repository, one.image.alias_tag) == (image.repository, image.alias_tag)
            ]
        found = by_alias.get((image.os, str(image.branch), image.kernel), [])
        others = [cell for cell in found if cell.arch != image.arch and not missing_pins(cell, lock)]
        made = driver_contexts(others, lock, given=given)
        return (context, *(one for one in made if one.image.alias_tag == image.alias_tag))

    return family_of


def _names(cell: Cell) -> tuple[str, str, str]:
    """What an alias is made of, as far as all architectures have it alike."""
    return cell.os.id, str(int(cell.driver.branch)), str(cell.kernel or "")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is to be done: the plan of the selected cells, and the images that are to be built.

    Toolkit and operator images have no verdict: `toolkits` are their contexts, without a row in the plan.
    `mirrors` are those of the user and of the matrix. `everything` has all cells of matrix and lock,
    whichever were selected.
    """

    plan: Plan
    lock: Lock
    given: Given
    toolkits: tuple[BuildContext, ...] = ()
    mirrors: Mapping[str, str] = field(default_factory=dict)
    everything: Callable[[], Iterable[Cell]] = tuple

    def contexts(self) -> tuple[BuildContext, ...]:
        """The contexts of all images that are to be built.

        They are rendered now, a millisecond each: who only tells the plan of 100,000 cells must not ask.
        """
        return (*driver_contexts(self.plan.to_build(), self.lock, given=self.given), *self.toolkits)

    def existing(self) -> tuple[tuple[BuildContext, str], ...]:
        """The images that the registry has, rendered now too, each with what its tag stands for."""
        rows = [row for row in self.plan.rows if row.verdict.state is State.EXISTS]
        contexts = driver_contexts((row.cell for row in rows), self.lock, given=self.given)
        return tuple(zip(contexts, (row.verdict.digest for row in rows), strict=True))

    def family_of(self) -> FamilyOf:
        """How the architectures are found that share an image's alias."""
        return families(self.everything(), self.toolkits, self.lock, given=self.given)

    @property
    def unbuildable(self) -> tuple[Planned, ...]:
        """The selected cells that are blocked or unknown."""
        return tuple(row for row in self.plan.rows if row.verdict.state in {State.BLOCKED, State.UNKNOWN})


def prepare(
    selection: Selection,
    *,
    mirrors: Mapping[str, str] | None = None,
    lookup_for: LookupFor | None = None,
    shard: ShardWanted | None = None,
) -> Prepared:
    """Plan, and render the toolkit's images, writing nothing. Raises UsageError, InputError.

    `mirrors` maps OS or OS/SUITE to an address. They serve the downloads of a build, and do not change what
    is built. `shard` leaves one job's part of what the plan would build, toolkit images to the first one.
    """
    known = read_knowledge(selection, lookup_for)
    given, named = selection.given, mirrors or {}
    chosen = choose(known, selection)
    systems = chosen.systems
    check_named("--mirror", map(mirror_os, named), {MIRROR, *systems})
    check_hosts(named)
    cells, toolkits, operators = chosen.cells, chosen.toolkits, chosen.operators
    if shard is not None:
        # before a registry is asked: what other jobs push meanwhile must not change whose a cell is
        cells = shard.of_cells(replace(known, lookup=None).plan(cells).to_build())
        toolkits, operators = (toolkits, operators) if shard.number == 1 else ((), ())
    plan = known.plan(cells)
    check_mirrors(named, plan.to_build())
    return Prepared(
        plan=plan,
        lock=known.lock,
        given=given,
        toolkits=(
            *toolkit_contexts(toolkits, known.matrix, known.lock, given=given),
            *operator_contexts(operators, known.matrix, known.lock, given=given),
        ),
        mirrors={**row_mirrors(row for row in known.matrix.rows if row.id in systems), **named},
        everything=known.cells,
    )


def row_mirrors(rows: Iterable[OsRow]) -> dict[str, str]:
    """The mirrors that the matrix names, for the OSes whose builds can use one."""
    return {row.id: row.mirror for row in rows if row.package_manager == "apt" and row.mirror}


def check_mirrors(mirrors: Mapping[str, str], cells: tuple[Cell, ...]) -> None:
    """Raises UsageError for a mirror that a build could not use.

    Only apt reads it: the repositories of dnf and zypper are configured in the base image. One of a
    subscription may have an address of its own. What NVIDIA makes is downloaded by BuildKit, which is told
    the address in a file that others can read.
    """
    targets = {(cell.os.id, cell.arch): cell.os for cell in cells}
    vendors = {
        f"{key}/{name}"
        for (system, arch), row in targets.items()
        for name in row.on(arch).vendors
        for key in (system, f"{system}-{arch}")
    }
    entitled = {
        f"{key}/{one.id}"
        for (system, arch), row in targets.items()
        for one in row.on(arch).repositories
        if one.entitled
        for key in (system, f"{system}-{arch}")
    }
    for key, address in mirrors.items():
        if (key in vendors or key.partition("/")[0] == MIRROR) and urlsplit(address).username is not None:
            raise UsageError(
                f"--mirror {key}: a build cannot log in there",
                details=[without_secrets(address)],
                resolution="give an address that needs no login; only `lock` can use one that does",
            )
    others = {mirror_os(key) for key in mirrors if key not in vendors | entitled}
    for cell in cells:
        if cell.os.package_manager != "apt" and cell.os.id in others:
            raise UsageError(
                f"--mirror works with apt only; {cell.os.id} uses {cell.os.package_manager}",
                resolution=f"give a base image whose repositories are your site's: --base {cell.os.id}=REF",
            )


class FailOn(Enum):
    """What a user makes a failure with --fail-on."""

    BLOCKED = "blocked"
    UNKNOWN = "unknown"
    NEVER = "never"
    """No verdict is one."""


def failing(
    prepared: Prepared, select: Collection[str], fail_on: Collection[FailOn] = ()
) -> tuple[Planned, ...]:
    """The cells whose verdict makes `build` and `push` fail.

    Without `fail_on` these are the blocked and unknown ones that were named in full; and, where no image of
    any cell is to be had at all, the unknown ones: a run that did nothing for want of pins is no success.
    """
    rows = prepared.unbuildable
    if fail_on:
        words = {word.value for word in fail_on}
        return tuple(row for row in rows if row.verdict.state.value in words)
    named = tuple(row for row in rows if row.key in select)
    if named or prepared.toolkits or len(rows) < len(prepared.plan.rows):
        return named
    return tuple(row for row in rows if row.verdict.state is State.UNKNOWN)


def exit_status(plan: Plan, reports: Sequence[CellReport], unwanted: Collection[Planned] = ()) -> int:
    """The exit status of `build` and `push`; `unwanted` are the cells whose verdict is a failure.

    1 where a build failed, else 75 where the registry did not answer, else 1 where a verdict is a failure,
    else 0.
    """
    if any(report.result in (Result.FAILED, Result.SKIPPED) or report.lost for report in reports):
        return 1
    if plan.degraded:
        return 75
    return int(bool(unwanted))
