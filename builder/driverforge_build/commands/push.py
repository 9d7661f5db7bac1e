"""`driverforge push`: built images to a registry."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import click

from driverforge_build import options


@click.command("push")
@options.matrix_option
@options.lock_option
@options.select_options
@options.base_option
@options.artifacts_option
@click.option(
    "--registry",
    required=True,
    metavar="HOST[:PORT]/PATH",
    callback=options.check_registry,
    help="Where to: images are HOST[:PORT]/PATH/driver:TAG.",
)
@click.option("--plan", "plan_only", is_flag=True, help="Push nothing; show the tags.")
@click.option("--keep-going", is_flag=True, help="Go on with other images after one failed.")
@options.json_option
def command(
    *,
    matrix_path: Path | None,
    lock_path: Path,
    select: tuple[str, ...],
    skip: tuple[str, ...],
    bases: dict[str, str],
    artifacts: dict[str, str],
    registry: str,
    plan_only: bool,
    keep_going: bool,
    as_json: bool,
) -> int:
    """Push the selected cells' images: an immutable tag, and the moving tag of NVIDIA's grammar, which then stands for it.

    An immutable tag is written once. What the registry has is not sent again. Without --select: every image that the engine has.
    The tag is made from all that went in: give the --matrix, --lock, --base and --toolkit-artifacts that `build` was given.

    Exit status: 0; 1 where a cell that --select names in full cannot be had, or an image failed under --keep-going.
    """
    from driverforge_build.building import BuildRequest, exit_status, prepare
    from driverforge_build.engine.buildx import Buildx
    from driverforge_build.publishing import SAME_AS_BUILD, alias_tag_of, push_all
    from driverforge_build.render.bake import immutable_tag_of, local_reference, repository_of
    from driverforge_oci.auth import load_credentials
    from driverforge_oci.client import RegistryClient
    from driverforge_oci.http import http_transport
    from driverforge_oci.session import Session

    request = BuildRequest(
        matrix=matrix_path,
        lock=lock_path,
        folder=Path(),
        select=select,
        skip=skip,
        bases=bases,
        artifacts=artifacts,
    )
    prepared = prepare(request)
    contexts = prepared.contexts
    for row in prepared.plan.rows:
        if row.key in select and row.verdict.state.value in {"blocked", "unknown"}:
            click.echo(f"{row.key}  {row.verdict.state.value}  {row.verdict.reason}", err=True)
    impossible = exit_status(prepared.plan, (), select)
    if plan_only:
        named = {context.image.id: (immutable_tag_of(context), alias_tag_of(context)) for context in contexts}
        if as_json:
            repositories = {
                context.image.id: repository_of(registry, context.image.repository) for context in contexts
            }
            click.echo(
                json.dumps(
                    {
                        "schema": 1,
                        "repository": repository_of(registry),
                        "repositories": repositories,
                        "tags": named,
                    },
                    indent=1,
                )
            )
        else:
            for context in contexts:
                tag, alias = named[context.image.id]
                click.echo(
                    f"{context.image.id}: {repository_of(registry, context.image.repository)}:{tag}, alias {alias}"
                )
        return impossible
    engine = Buildx()
    engine.check()
    if not select:
        contexts = tuple(context for context in contexts if engine.inspect(local_reference(context)))
    client = RegistryClient(Session(http_transport(os.environ), load_credentials(os.environ)))
    reports, errors = push_all(
        contexts,
        registry,
        engine,
        client,
        given=request.given,
        keep_going=keep_going,
        progress=lambda text: click.echo(text, err=True),
    )
    if as_json:
        failed = {cell: error.document() for cell, error in errors.items()}
        click.echo(
            json.dumps(
                {"schema": 1, "images": [asdict(report) for report in reports], "failed": failed}, indent=1
            )
        )
    else:
        for report in reports:
            click.echo(f"{report.cell}  {'pushed' if report.sent else 'was there'}  {report.digest}")
            click.echo(f"  {report.reference}\n  {report.alias}")
        for error in errors.values():
            click.echo(error.render(), err=True)
        if not (reports or errors):
            click.echo(f"nothing to push: the engine has none of these images; {SAME_AS_BUILD}")
    return max((1 if keep_going else error.exit_code for error in errors.values()), default=impossible)
