"""The life of `driverforge generate`: what the plan builds, written as a folder for each image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driverforge_build.advice import Selection
from driverforge_build.app.knowledge import lockable
from driverforge_build.app.prepare import Prepared
from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.programcells import split_globs
from driverforge_build.render.bake import write_all
from driverforge_build.render.context import BuildContext
from driverforge_build.verdict.verdicts import State, Verdict
from driverforge_core.errors import DriverforgeError, InputError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """The contexts that were written, and the cells that the plan does not build, with their verdicts."""

    contexts: tuple[BuildContext, ...]
    left_out: Mapping[str, Verdict]


def generate(
    prepared: Prepared, selection: Selection, output: Path, *, vcs_ref: str, writing: bool
) -> Generated:
    """Write OUTPUT/<cell>/ for each cell that the plan builds, and one bake file.

    Raises InputError and UsageError where there is nothing to write that the registry does not have, and
    StorageFailed.
    """
    done = Generated(contexts=prepared.contexts(), left_out=_left_out(prepared, selection))
    if not done.contexts and not any(one.state is State.EXISTS for one in done.left_out.values()):
        raise _nothing(selection, done.left_out)
    if writing and done.contexts:
        write_all(done.contexts, output, vcs_ref=vcs_ref)
    return done


def _left_out(prepared: Prepared, selection: Selection) -> dict[str, Verdict]:
    """The cells that are not built, with why.

    Where the user named no cells, only those count whose OS and architecture are in the lock.
    """
    *_, drivers = split_globs(selection.select)
    return {
        row.key: row.verdict
        for row in prepared.plan.rows
        if row.verdict.state is not State.BUILD
        and (drivers or prepared.lock.target(row.cell.os.id, row.cell.arch))
    }


def _nothing(selection: Selection, left_out: Mapping[str, Verdict]) -> DriverforgeError:
    given = selection.given
    if not left_out:
        select, skip = lockable(load_matrix(given.matrix), selection)
        return UsageError(
            f"{given.lock} holds no system of the matrix; nothing was written",
            resolution=given.command("lock", select=select, skip=skip),
        )
    details = [f"{key}: {verdict.reason}" for key, verdict in left_out.items()]
    if runs := dict.fromkeys(verdict.run for verdict in left_out.values() if verdict.run):
        return InputError(
            "no cell that was asked for can be built; nothing was written",
            details=details,
            resolution="; ".join(runs),
        )
    return UsageError(
        "no cell that was asked for can be built; nothing was written",
        details=details,
        resolution="select other cells; `driverforge explain` shows the evidence for one of these",
    )
