"""`driverforge generate` writes what people read, commit and build themselves.

These are Dockerfiles, contexts and docker-bake.json.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.advice import Selection
from driverforge_build.commands.shared import adapters, inputs, options
from driverforge_build.commands.shared.output import say

if TYPE_CHECKING:
    from driverforge_build.app.prepare import FailOn
    from driverforge_build.documents.plans import GeneratedImage, GenerateDocument


@click.command("generate")
@inputs.selection_options(
    inputs.base_option, inputs.certificate_option, inputs.artifacts_option, inputs.wheels_option
)
@options.registry_option
@options.vcs_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Where a folder for each cell is written.",
)
@click.option("--plan", "plan_only", is_flag=True, help="Write nothing; say what would be written.")
@options.fail_on_option
@options.json_option
def command(
    *,
    selection: Selection,
    registry: options.Registry | None,
    vcs_ref: str,
    output: Path,
    plan_only: bool,
    fail_on: frozenset[FailOn],
    as_json: bool,
) -> int:
    """Write DIR/<cell>/ with a Dockerfile and all it needs, and one DIR/docker-bake.json.

    These are the cells that `plan` builds, with --registry also less those that the registry has. What else
    was selected is named on standard error with its verdict; without --select, what else the lock knows the
    operating system of. `--select 'toolkit-*'` is the container toolkit's image, which needs
    --toolkit-artifacts. To build: cd DIR && docker buildx bake.

    Exit status: 0; 1 where a verdict fails the run (--fail-on); 64 where nothing is left to write, 65 where
    that is for want of pins; 75 where the registry did not say whether it has an image; others as
    `driverforge --help` has them.
    """
    from driverforge_build.app.generate import generate
    from driverforge_build.app.prepare import exit_status, failing, prepare
    from driverforge_build.render.bake import BAKE_FILE, target_name

    lookup_for = adapters.lookup_in(registry, selection.given, as_json=as_json, patient=True)
    prepared = prepare(selection, lookup_for=lookup_for)
    done = generate(prepared, selection, output, vcs_ref=vcs_ref, writing=not plan_only)
    for key, verdict in done.left_out.items():
        say(f"left out {key}: {verdict.state}: {verdict.reason}", err=True)
    status = exit_status(prepared.plan, (), failing(prepared, selection.select, fail_on))
    if as_json:
        made: list[GeneratedImage] = [
            {
                "cell": context.image.id,
                "folder": str(output / context.image.id),
                "target": target_name(context.image.id),
                "inputs": context.inputs,
            }
            for context in done.contexts
        ]
        document: GenerateDocument = {
            "schema": 1,
            "written": not plan_only,
            "bake_file": str(output / BAKE_FILE),
            "images": made,
            "left_out": {
                key: {"verdict": verdict.state.value, "reason": verdict.reason, "run": verdict.run}
                for key, verdict in done.left_out.items()
            },
        }
        say(json.dumps(document, indent=1))
        return status
    for context in done.contexts:
        say(f"{'would write' if plan_only else 'wrote'} {output / context.image.id}")
    if not done.contexts:
        say("nothing to write: the registry has every image")
    elif not plan_only:
        say(f"to build them: cd {shlex.quote(str(output))} && docker buildx bake")
    return status
