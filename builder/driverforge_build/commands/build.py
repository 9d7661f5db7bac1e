"""`driverforge build`: plan, generate, and build what the plan says, through an engine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driverforge_build.commands import adapters, options
from driverforge_build.commands.output import say, write_lines

if TYPE_CHECKING:
    from driverforge_build.app.prepare import FailOn, Prepared
    from driverforge_build.app.runner import CellReport
    from driverforge_build.ports import BuiltImage
    from driverforge_build.render.context import BuildContext


@click.command("build")
@options.matrix_option
@options.lock_option
@options.select_options
@options.base_option
@options.artifacts_option
@options.mirror_option
@options.registry_option
@options.cache_option
@options.vcs_option
@options.engine_option
@click.option(
    "--builder",
    "builders",
    multiple=True,
    metavar="NAME",
    help="A builder of `docker buildx ls` (docker-container, kubernetes, remote); may be repeated: each "
    "builds its share of the cells. Default: docker's own choice.",
)
@click.option(
    "--push",
    "pushing",
    is_flag=True,
    help="Let the builders send images to --registry, and keep none in the engine.",
)
@click.option(
    "--plan",
    "plan_only",
    is_flag=True,
    help="Build and write nothing; show the plan and how many images would be built.",
)
@click.option("--keep-going", is_flag=True, help="Go on with the other cells after one failed.")
@click.option(
    "-j",
    "--jobs",
    "workers",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Images that are built at a time, on each builder.",
)
@click.option(
    "--ca",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True),
    metavar="FILE",
    envvar="DRIVERFORGE_CA",
    help="Certificate authorities (PEM) of your site, for downloads in the build; they do not get into the "
    "image.",
)
@click.option(
    "--network",
    default="",
    metavar="NAME",
    help="Network of build steps. Default: docker's, or `host` where it has no bridge.",
)
@click.option(
    "--no-cache", is_flag=True, help="Run every step again, also those that BuildKit has in its cache."
)
@options.fail_on_option
@options.json_option
def command(
    *,
    matrix_path: Path | None,
    lock_path: Path,
    cache_dir: Path | None,
    plan_only: bool,
    as_json: bool,
    mirrors: dict[str, str],
    select: tuple[str, ...],
    skip: tuple[str, ...],
    bases: dict[str, str],
    artifacts: dict[str, str],
    registry: str | None,
    engine_name: str,
    builders: tuple[str, ...],
    pushing: bool,
    fail_on: frozenset[FailOn],
    **how: Any,
) -> int:
    """Build the images of the selected cells that have the verdict `build`; with `--select 'toolkit-*'` the
    container toolkit's.

    With --registry, images that it has already, made from the same inputs, are left out. Images stay in the
    engine, and `driverforge push` publishes them; with --push they go from the builders to the registry, an
    immutable tag and the moving one each. HTTP_PROXY, HTTPS_PROXY and NO_PROXY are handed to the build and
    kept out of the image.

    Exit status: 0; 1 where a build failed, or a verdict did (--fail-on); 69 without an engine; 75 where the
    registry did not say what it has, or another build works in the same folder; others as
    `driverforge --help` has them.
    """
    from driverforge_build.advice import Given
    from driverforge_build.app.build import BuildRequest, PushTarget, build
    from driverforge_build.app.knowledge import Selection
    from driverforge_build.app.prepare import exit_status, failing, prepare
    from driverforge_build.commands.progress import shown_builds

    if pushing and registry is None:
        raise click.UsageError("--push needs --registry: where the images go")
    if engine_name != "docker" and (builders or pushing):
        raise click.UsageError("--builder and --push need --engine docker; `push` sends what others built")
    given = Given(matrix=matrix_path, lock=lock_path, bases=bases, artifacts=artifacts)
    selection = Selection(given=given, select=select, skip=skip)
    request = BuildRequest(folder=(cache_dir or adapters.default_cache()).resolve(), **how)
    lookup_for = adapters.lookup_in(registry, bases, as_json=as_json)
    prepared = prepare(selection, mirrors=mirrors, lookup_for=lookup_for)
    contexts = prepared.toolkits if plan_only else prepared.contexts()
    reports: tuple[CellReport, ...] = ()
    named = ""
    if contexts and not plan_only:
        engines = adapters.engines(engine_name, builders, keeps=not pushing)
        named = "; ".join(engine.check() for engine in engines)
        push = None
        if registry and pushing:
            push = PushTarget(registry=registry, client=adapters.registry_client(as_json=as_json))
        reports = build(request, contexts, prepared.mirrors, engines, shown_builds, push=push)
    if as_json:
        write_lines(_json_lines(prepared, contexts, reports, named))
    elif plan_only or not reports:
        _print_plan(prepared)
    else:
        _print_reports(prepared, reports)
    return exit_status(prepared.plan, reports, failing(prepared, select, fail_on))


def _json_lines(
    prepared: Prepared, contexts: Sequence[BuildContext], reports: Sequence[CellReport], engine: str
) -> Iterator[str]:
    """One JSON document, a cell a line."""
    from driverforge_build.render.bake import local_reference

    made = {
        context.image.id: {"inputs": context.inputs, "reference": local_reference(context)}
        for context in contexts
    }
    built = {report.cell: report.document() for report in reports}
    verdicts = {row.key: (row.verdict.state.value, row.verdict.reason) for row in prepared.plan.rows}
    yield f'{{"schema": 1, "engine": {json.dumps(engine)}, "cells": ['
    before = ""
    for key in dict.fromkeys((*verdicts, *made)):
        verdict, reason = verdicts.get(key, ("build", ""))
        told = {"cell": key, "verdict": verdict, "reason": reason, "inputs": None}
        yield before + json.dumps(told | made.get(key, {}) | built.get(key, {}))
        before = ","
    yield "]}"


def _print_plan(prepared: Prepared) -> None:
    from driverforge_build.plan.text import summary, table
    from driverforge_build.render.bake import local_reference

    if prepared.plan.rows:
        write_lines(table(prepared.plan))
        say("\n".join(["", *summary(prepared.plan)]))
    for context in prepared.toolkits:
        say(f"would build {local_reference(context)}")
    due = len(prepared.plan.to_build())
    if due:
        say(f"would build {due} images" if due > 1 else "would build 1 image")
    elif not prepared.toolkits:
        say("nothing to build")


def _size(image: BuiltImage) -> str:
    last = f", last layer {image.layers[-1].size / 1e6:.1f} MB" if image.layers else ""
    return f"{image.size / 1e6:.0f} MB{last}"


def _print_reports(prepared: Prepared, reports: Sequence[CellReport]) -> None:
    for report in reports:
        image = report.image
        what = _size(image) if image else f"log: {report.log}"
        say(f"{report.cell}  {report.result.value}  {report.seconds:.0f} s  {what}")
        if image:
            say(f"  {report.reference}")
        if report.error:
            say(report.error.render(), err=True)
    for row in prepared.unbuildable:
        say(f"{row.key}  {row.verdict.state.value}  {row.verdict.reason}")
