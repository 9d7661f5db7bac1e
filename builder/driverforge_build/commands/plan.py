"""`driverforge plan`: each cell with its verdict."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from driverforge_build import options

_COLOURS = {"build": "green", "exists": "cyan", "vendor-ships": "cyan", "blocked": "red", "unknown": "yellow"}


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
    """Show each cell with its verdict: build, exists, vendor-ships, blocked, unknown.

    Nothing is downloaded: the lock file holds what discovery found. With --registry, the registry is asked for each image that
    would be built. Exit status: 0, or 75 where the registry did not say whether it has an image.
    """
    from driverforge_build import knowledge
    from driverforge_build import plan as plans

    known = knowledge.read(matrix_path, lock_path, bases=bases, registry=registry, select=select, skip=skip)
    plan = known.plan(known.cells(select, skip))
    if as_json:
        _write(plans.json_lines(plan))
        return 75 if plan.degraded else 0
    _write(
        plans.table(
            plan,
            style=lambda text, state: (
                click.style(text, fg=_COLOURS[state.value]) if sys.stdout.isatty() else text
            ),
        )
    )
    _write(["", *plans.summary(plan)])
    return 75 if plan.degraded else 0


def _write(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
