"""`driverforge plan`: each cell with its verdict."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from driverforge_build.commands import adapters, options
from driverforge_build.commands.output import say, write_lines

_COLOURS = {"build": "green", "exists": "cyan", "blocked": "red", "unknown": "yellow"}


@click.command("plan")
@options.matrix_option
@options.lock_option
@options.select_options
@options.base_option
@options.registry_option
@options.json_option
def command(
    *,
    matrix_path: Path | None,
    lock_path: Path,
    select: tuple[str, ...],
    skip: tuple[str, ...],
    bases: dict[str, str],
    registry: str | None,
    as_json: bool,
) -> int:
    """Show each cell with its verdict: build, exists, blocked, unknown.

    Nothing is downloaded: the lock file holds what discovery found. With --registry, the registry is asked
    for each image that would be built.

    Exit status: 0 whatever the verdicts, 75 where the registry did not say whether it has an image; others as
    `driverforge --help` has them.
    """
    from driverforge_build.advice import Given
    from driverforge_build.app.knowledge import Selection, read_knowledge
    from driverforge_build.plan.text import json_lines, summary, table

    given = Given(matrix=matrix_path, lock=lock_path, bases=bases)
    selection = Selection(given=given, select=select, skip=skip)
    known = read_knowledge(selection, adapters.lookup_in(registry, bases, as_json=as_json))
    plan = known.plan(known.cells(select, skip))
    if as_json:
        write_lines(json_lines(plan))
        return 75 if plan.degraded else 0
    write_lines(
        table(
            plan,
            style=lambda text, state: (
                click.style(text, fg=_COLOURS[state.value]) if sys.stdout.isatty() else text
            ),
        )
    )
    say("\n".join(["", *summary(plan)]))
    return 75 if plan.degraded else 0
