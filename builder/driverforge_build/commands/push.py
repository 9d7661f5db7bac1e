"""`driverforge push`: built images to a registry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.commands import adapters, options
from driverforge_build.commands.output import say

if TYPE_CHECKING:
    from driverforge_build.app.prepare import FailOn
    from driverforge_build.documents import PushDocument, PushPlanDocument
    from driverforge_build.publish.upload import PushReport
    from driverforge_core.errors import DriverforgeError


@click.command("push")
@options.matrix_option
@options.lock_option
@options.select_options
@options.base_option
@options.certificate_option
@options.artifacts_option
@options.engine_option
@click.option(
    "--registry",
    required=True,
    metavar="HOST[:PORT]/PATH",
    callback=options.check_registry,
    help="Where to: images are HOST[:PORT]/PATH/driver:TAG.",
)
@options.attest_options
@options.origin_options
@click.option("--plan", "plan_only", is_flag=True, help="Push nothing; show the tags.")
@click.option("--keep-going", is_flag=True, help="Go on with other images after one failed.")
@options.fail_on_option
@options.json_option
def command(
    *,
    matrix_path: Path | None,
    lock_path: Path,
    select: tuple[str, ...],
    skip: tuple[str, ...],
    bases: dict[str, str],
    certificate: Path | None,
    artifacts: dict[str, str],
    registry: str,
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
    from driverforge_build.advice import Given
    from driverforge_build.app.knowledge import Selection
    from driverforge_build.app.prepare import exit_status, failing, prepare
    from driverforge_build.app.push import push_all, pushable
    from driverforge_build.publish.upload import SAME_AS_BUILD
    from driverforge_build.render.bake import immutable_tag_of, repository_of

    given = Given(
        matrix=matrix_path, lock=lock_path, bases=bases, certificate=certificate, artifacts=artifacts
    )
    prepared = prepare(Selection(given=given, select=select, skip=skip))
    contexts = prepared.contexts()
    unwanted = failing(prepared, select, fail_on)
    for row in unwanted:
        say(f"{row.key}  {row.verdict.state.value}  {row.verdict.reason}", err=True)
    for run in dict.fromkeys(row.verdict.run for row in unwanted if row.verdict.run):
        say(f"to run: {run}", err=True)
    impossible = exit_status(prepared.plan, (), unwanted)
    if plan_only:
        named = {
            context.image.id: (immutable_tag_of(context), context.image.alias_tag) for context in contexts
        }
        if as_json:
            planned: PushPlanDocument = {
                "schema": 1,
                "repository": repository_of(registry),
                "repositories": {
                    context.image.id: repository_of(registry, context.image.repository)
                    for context in contexts
                },
                "tags": {cell: list(tags) for cell, tags in named.items()},
            }
            say(json.dumps(planned, indent=1))
        else:
            for context in contexts:
                tag, alias = named[context.image.id]
                say(
                    f"{context.image.id}: {repository_of(registry, context.image.repository)}:{tag}, alias "
                    f"{alias}"
                )
        return impossible
    engine = adapters.engine(engine_name)
    engine.check()
    publisher = adapters.publisher(registry, engine, prepared, as_json=as_json, attest=attest)
    reports, errors = push_all(
        pushable(contexts, engine, named=bool(select)),
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


def _document(reports: Sequence[PushReport], errors: Mapping[str, DriverforgeError]) -> PushDocument:
    from driverforge_build.documents import failure

    return {
        "schema": 1,
        "images": [report.document() for report in reports],
        "failed": {cell: failure(error) for cell, error in errors.items()},
    }
