"""`driverforge explain`: the evidence behind one cell's verdict."""

from __future__ import annotations

import json
from pathlib import Path

import click

from driverforge_build.advice import Given, Selection
from driverforge_build.commands.shared import adapters, inputs, options
from driverforge_build.commands.shared.output import say


@click.command("explain")
@click.argument("cell")
@inputs.given_options(inputs.base_option, inputs.certificate_option)
@options.registry_option
@options.advisories_option
@options.json_option
def command(
    *,
    cell: str,
    given: Given,
    registry: options.Registry | None,
    advisories: tuple[Path, ...],
    as_json: bool,
) -> int:
    """Show the evidence behind CELL's verdict.

    Packages with version, suite and sha256; who signed the suites and when; what the headers say to each
    probe; the rows of the matrix with file and line. With --registry also whether the registry has the image;
    if not, what its moving tag stands for, and whether that stood on another base image.

    Exit status: 0 whatever the verdict, 64 where there is no such cell, 75 where the registry did not say
    whether it has the image; others as `driverforge --help` has them.
    """
    from driverforge_build.app.knowledge import read_knowledge
    from driverforge_build.plan.evidence import document, find_cell, paragraphs
    from driverforge_build.verdict.verdicts import State

    lookup_for = adapters.lookup_in(registry, given, as_json=as_json)
    known = read_knowledge(Selection(given=given), lookup_for, advisories=advisories)
    found = find_cell(known.matrix, known.lock, cell)
    planned = known.plan([found])
    verdict = planned.rows[0].verdict
    stands = []
    if registry is not None and verdict.state is State.BUILD:
        # both bring templates along
        from driverforge_build.publish.lookup import standing
        from driverforge_build.render.context import driver_contexts

        (context,) = driver_contexts([planned.rows[0].cell], known.lock, given=given)
        client = adapters.asking_client(as_json=as_json, plain_http=registry.plain_hosts)
        stands = standing(client, registry.place, context)
    if as_json:
        told = document(found, verdict, known.matrix, known.lock, given.bases)
        say(json.dumps({**told, "standing": stands}, indent=1))
    else:
        for paragraph in paragraphs(found, verdict, known.matrix, known.lock, given.bases):
            say("\n".join([paragraph.title, *(f"  {line}" for line in paragraph.lines)]))
        if registry is None:
            stands = ["not asked; give --registry"]
        if stands:
            say("\n".join(["registry", *(f"  {line}" for line in stands)]))
    return 75 if planned.degraded else 0
