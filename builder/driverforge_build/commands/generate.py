"""`driverforge generate` writes what people read, commit and build themselves.

These are Dockerfiles, contexts and docker-bake.json.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click

from driverforge_build.commands import options
from driverforge_build.commands.output import say


@click.command("generate")
@options.matrix_option
@options.lock_option
@options.select_options
@options.base_option
@options.artifacts_option
@options.vcs_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Where a folder for each cell is written.",
)
@click.option("--plan", "plan_only", is_flag=True, help="Write nothing; say what would be written.")
@options.json_option
def command(
    *,
    matrix_path: Path | None,
    lock_path: Path,
    select: tuple[str, ...],
    skip: tuple[str, ...],
    bases: dict[str, str],
    artifacts: dict[str, str],
    vcs_ref: str,
    output: Path,
    plan_only: bool,
    as_json: bool,
) -> int:
    """Write DIR/<cell>/ with a Dockerfile and all it needs, and one DIR/docker-bake.json.

    What the plan blocks is left out and named on standard error. Without --select: every cell of the
    operating systems that the lock knows, less those with a download that has no pin, which are named there
    too. `--select 'toolkit-*'` is the container toolkit's image, which needs --toolkit-artifacts. To build:
    cd DIR && docker buildx bake.

    Exit status: 0; 1 where a cell that --select names in full is blocked; 64 where nothing is left to write;
    65 where a selected cell has a download without a pin; others as `driverforge --help` has them.
    """
    from driverforge_build.advice import Given
    from driverforge_build.app.generate import generate
    from driverforge_build.app.knowledge import Selection
    from driverforge_build.render.bake import BAKE_FILE, target_name

    given = Given(matrix=matrix_path, lock=lock_path, bases=bases, artifacts=artifacts)
    selection = Selection(given=given, select=select, skip=skip)
    done = generate(selection, output, vcs_ref=vcs_ref, writing=not plan_only)
    for key, reasons in done.left_out.items():
        say(f"left out {key}: {'; '.join(reasons)}", err=True)
    status = int(any(key in select for key in done.left_out))
    if as_json:
        made = [
            {
                "cell": context.image.id,
                "folder": str(output / context.image.id),
                "target": target_name(context.image.id),
                "inputs": context.inputs,
            }
            for context in done.contexts
        ]
        document = {
            "schema": 1,
            "written": not plan_only,
            "bake_file": str(output / BAKE_FILE),
            "images": made,
            "left_out": done.left_out,
        }
        say(json.dumps(document, indent=1))
        return status
    for context in done.contexts:
        say(f"{'would write' if plan_only else 'wrote'} {output / context.image.id}")
    if not plan_only:
        say(f"to build them: cd {shlex.quote(str(output))} && docker buildx bake")
    return status
