"""`driverforge push`: built images to a registry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from driverforge_build.advice import Selection
from driverforge_build.commands.shared import adapters, inputs, options
from driverforge_build.commands.shared.output import say
from driverforge_build.commands.shared.signoptions import attest_options, origin_options

if TYPE_CHECKING:
    from driverforge_build.app.prepare import FailOn
    from driverforge_build.documents.images import PushDocument, PushPlanDocument
    from driverforge_build.publish.upload import PushReport
    from driverforge_build.render.context import BuildContext
    from driverforge_core.errors import DriverforgeError


@click.command("push")
@inputs.selection_options(
    inputs.base_option, inputs.certificate_option, inputs.artifacts_option, inputs.wheels_option
)
@options.engine_option
@click.option(
    "--registry",
    required=True,
    metavar=options.REGISTRY,
    callback=options.check_registry,
    help="Where to: images are HOST[:PORT]/PATH/driver:TAG.",
)
@attest_options
@origin_options
@click.option("--plan", "plan_only", is_flag=True, help="Push nothing; show the tags.")
@click.option("--keep-going", is_flag=True, help="Go on with other images after one failed.")
@options.fail_on_option
@options.json_option
def command(
    *,
    selection: Selection,
    registry: options.Registry,
    engine_name: str,
    attest: adapters.Attest | None,
    plan_only: bool,
    keep_going: bool,
    fail_on: frozenset[FailOn],
    as_json: bool,
) -> int:
    """Push the selected cells' images: an immutable tag, and the moving tag of NVIDIA's grammar, which then
    stands for it.

    An immutable tag is written once. What the registry has is not sent again. Without --select: every image
    that the engine has. The tag is made from all that went in: give the --matrix, --lock, --base,
    --sign-certificate and --toolkit-artifacts that `build` was given.

    Exit status: 0; 1 where a verdict fails the run (--fail-on), or an image failed under --keep-going; 75
    where the registry does not answer, 77 where it refuses the login; others as `driverforge --help` has
    them.
    """
    from driverforge_build.app.prepare import exit_status, failing, prepare
    from driverforge_build.app.push import push_all, pushable
    from driverforge_build.publish.upload import SAME_AS_BUILD

    prepared = prepare(selection)
    contexts = prepared.contexts()
    unwanted = failing(prepared, selection.select, fail_on)
    for row in unwanted:
        say(f"{row.key}  {row.verdict.state.value}  {row.verdict.reason}", err=True)
    for run in dict.fromkeys(row.verdict.run for row in unwanted if row.verdict.run):
        say(f"to run: {run}", err=True)
    impossible = exit_status(prepared.plan, (), unwanted)
    if plan_only:
        _print_plan(contexts, registry.place, as_json=as_json)
        return impossible
    engine = adapters.engine(engine_name, registry)
    engine.check()
    publisher = adapters.publisher(registry, engine, prepared, as_json=as_json, attest=attest)
    reports, errors = push_all(
        pushable(contexts, engine, named=bool(selection.select)),
        publisher,
        keep_going=keep_going,
        progress=lambda text: say(text, err=True),
    )
    if as_json:
        say(json.dumps(_document(reports, errors), indent=1))
    else:
        for report in reports:
            say(f"{report.cell}  {'pushed' if report.sent else 'was there'}  {report.digest}")
            say("\n".join(f"  {line}" for line in report.lines()))
        for error in errors.values():
            say(error.render(), err=True)
        if not (reports or errors):
            say(f"nothing to push: the engine has none of these images; {SAME_AS_BUILD}")
    return max((1 if keep_going else error.exit_code for error in errors.values()), default=impossible)


def _print_plan(contexts: Sequence[BuildContext], registry: str, *, as_json: bool) -> None:
    from driverforge_build.render.bake import immutable_tag_of, repository_of

    tags = {context.image.id: [immutable_tag_of(context), context.image.alias_tag] for context in contexts}
    places = {context.image.id: repository_of(registry, context.image.repository) for context in contexts}
    if as_json:
        planned: PushPlanDocument = {
            "schema": 1,
            "repository": repository_of(registry),
            "repositories": places,
            "tags": tags,
        }
        say(json.dumps(planned, indent=1))
        return
    for image, (tag, alias) in tags.items():
        say(f"{image}: {places[image]}:{tag}, alias {alias}")


def _document(reports: Sequence[PushReport], errors: Mapping[str, DriverforgeError]) -> PushDocument:
    from driverforge_build.documents.failures import failure

    return {
        "schema": 1,
        "images": [report.document() for report in reports],
        "failed": {cell: failure(error) for cell, error in errors.items()},
    }
