"""`driverforge explain`: the evidence behind one cell's verdict."""

from __future__ import annotations

import json
from pathlib import Path

import click

from driverforge_build import options


@click.command("explain")
@click.argument("cell")
@options.matrix_option
@options.lock_option
@options.base_option
@options.registry_option
@options.json_option
def command(
    *,
    cell: str,
    matrix_path: Path | None,
    lock_path: Path,
    bases: dict[str, str],
    registry: str | None,
    as_json: bool,
) -> int:
    """Show the evidence behind CELL's verdict.

    Packages with version, suite and sha256; who signed the suites and when; what the headers say to each probe; the rows of the
    matrix with file and line. With --registry also whether the registry has the image.
    """
    from driverforge_build import explain, knowledge

    known = knowledge.read(matrix_path, lock_path, bases=bases, registry=registry)
    matrix, lock = known.matrix, known.lock
    found = explain.find_cell(matrix, lock, cell)
    planned = known.plan([found])
    verdict = planned.rows[0].verdict
    if as_json:
        click.echo(json.dumps(explain.document(found, verdict, matrix, lock), indent=1, ensure_ascii=False))
    else:
        for section in explain.sections(found, verdict, matrix, lock):
            click.echo("\n".join([section.title, *(f"  {line}" for line in section.lines)]))
        if registry is None:
            click.echo("registry\n  not asked; give --registry")
    return 75 if planned.degraded else 0
