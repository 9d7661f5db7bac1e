"""`driverforge build`: plan, generate, and build what the plan says, through an engine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.advice import BuildOptions, Selection
from driverforge_build.commands.shared import adapters, inputs, options
from driverforge_build.commands.shared.output import after_the_answer, say, write_lines
from driverforge_build.commands.shared.signoptions import (
    SigningWords,
    attest_options,
    origin_options,
    signing_options,
)

if TYPE_CHECKING:
    from driverforge_build.app.prepare import FailOn, Prepared
    from driverforge_build.app.runner import CellReport
    from driverforge_build.documents.images import BuildCell
    from driverforge_build.plan.shards import ShardWanted
    from driverforge_build.ports import BuiltImage


@click.command("build")
@inputs.selection_options(
    inputs.base_option, inputs.certificate_option, inputs.artifacts_option, inputs.wheels_option
)
@options.shard_option
@options.times_option(written=True)
@signing_options
@options.mirror_option
@options.entitlement_option
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
    "--plan",
    "plan_only",
    is_flag=True,
    help="Build and write nothing; show the plan and how many images would be built.",
)
@click.option("--keep-going", is_flag=True, help="Go on with the other cells after one failed.")
@options.jobs_option("Images that are built at a time, on each builder.")
@click.option(
    "--ca",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True),
    metavar="FILE",
    envvar="DRIVERFORGE_CA",
    help="Certificate authorities (PEM) of your site, for downloads in the build; they do not get into the "
    "image.",
)
@click.option(
    "--archive",
    "archives",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="An archive of NVIDIA's that you have, as for `lock`: images whose pinned sha256 it has are built "
    "from it, and download none; may be repeated.",
)
@click.option(
    "--network",
    default="",
    metavar="NAME",
    help="Network of build steps. Default: docker's, or `host` where it has no bridge.",
)
@click.option(
    "--cache-from",
    multiple=True,
    metavar="HOST[:PORT]/PATH",
    callback=options.check_repositories,
    help="Take layers that images share from this repository, where --cache-to put them; may be repeated.",
)
@click.option(
    "--cache-to",
    default="",
    metavar="HOST[:PORT]/PATH",
    callback=options.check_repository,
    help="Keep user space and tool chain in this repository for other builders. Needs a builder that can "
    "(docker-container; the engine's own with the containerd image store).",
)
@click.option(
    "--no-cache", is_flag=True, help="Run every step again, also those that BuildKit has in its cache."
)
@click.option(
    "--no-compile-cache",
    is_flag=True,
    help="Compile each module anew, with nothing that earlier compilations left on the builder: for one that "
    "you share with strangers.",
)
@click.option(
    "--push",
    "pushing",
    is_flag=True,
    help="Push each image to --registry as soon as it stands, as `driverforge push` does; with --builder the "
    "builders send it, and no engine keeps it.",
)
@attest_options
@origin_options
@click.option(
    "--retries",
    type=click.IntRange(0, 20),
    default=2,
    show_default=True,
    metavar="N",
    help="Further attempts for an image that failed for a reason that passes: a network, a busy registry or "
    "mirror. Never for a compiler's error.",
)
@options.fail_on_option
@options.report_options
@options.json_option
@options.gathered("how", BuildOptions)
def command(
    *,
    selection: Selection,
    cache_dir: Path | None,
    plan_only: bool,
    as_json: bool,
    mirrors: dict[str, str],
    shard: ShardWanted | None,
    times_path: Path | None,
    signing: SigningWords,
    entitlement: Path | None,
    registry: options.Registry | None,
    engine_name: str,
    builders: tuple[str, ...],
    pushing: bool,
    attest: adapters.Attest | None,
    fail_on: frozenset[FailOn],
    reports: options.Reports,
    how: BuildOptions,
) -> int:
    """Build the images of the selected cells that have the verdict `build`; with `--select 'toolkit-*'` the
    container toolkit's.

    With --registry, images that it has already, made from the same inputs, are left out. Images stay in the
    engine; `driverforge push` publishes them, or --push does while others are built: then a run that was
    killed goes on where it was when it is started again. With --builder and --push the builders send them,
    and no engine is needed. HTTP_PROXY, HTTPS_PROXY and NO_PROXY are handed to the build and kept out of the
    image.

    Exit status: 0; 1 where a build failed, or a verdict did (--fail-on); 69 without an engine; 75 where the
    registry did not say what it has, or another build works in the same folder; others as
    `driverforge --help` has them.
    """
    from driverforge_build.app import outcomes
    from driverforge_build.app.build import BuildRequest, Built, run
    from driverforge_build.app.prepare import exit_status, failing, prepare
    from driverforge_build.app.runner import build_times
    from driverforge_build.commands.shared.progress import shown_builds
    from driverforge_build.plan.times import merge_times, read_times
    from driverforge_build.sharedfile import make_folder_of

    docker = engine_name == "docker"
    _refuse(
        {
            "--push needs --registry: where to?": pushing and registry is None,
            "--attest needs --push: it is the image in the registry that is attested": attest and not pushing,
            "--builder needs --engine docker: builders are buildx's": builders and not docker,
            "--cache-to and --cache-from need --engine docker: it is BuildKit's cache": (
                (how.cache_to or how.cache_from) and not docker
            ),
            "--push with --unsigned-to: it makes no images": pushing and signing.unsigned_to,
            "--push with --engine nop: it has no images": pushing and engine_name == "nop",
        }
    )
    folder = (cache_dir or adapters.default_cache()).resolve()
    request = BuildRequest(
        folder=folder,
        options=how,
        signing=signing.signing(selection.given.certificate, folder, planning=plan_only),
        unsigned_to=signing.unsigned_to,
    )
    lookup_for = adapters.lookup_in(registry, selection.given, as_json=as_json, patient=not plan_only)
    prepared = prepare(selection, mirrors=mirrors, lookup_for=lookup_for, shard=shard)
    if plan_only:
        done = Built(contexts=prepared.toolkits)
    else:
        engines = adapters.engines(engine_name, builders, keeps=not (pushing and builders), registry=registry)
        entitled = {
            (cell.os.id, cell.arch): cell.os
            for cell in prepared.plan.to_build()
            if any(one.entitled for one in cell.os.repositories)
        }
        opened = adapters.subscriptions(
            entitled, mirrors=prepared.mirrors, entitlement=entitlement, own=not builders
        )
        publisher = None
        if registry is not None and pushing:
            publisher = adapters.publisher(
                registry,
                engines[0],
                prepared,
                as_json=as_json,
                attest=replace(attest, revision=how.vcs_ref) if attest else None,
            )
        if times_path:
            make_folder_of(times_path, option="--times")
            read_times([times_path])
        done = run(
            prepared,
            replace(request, subscriptions=opened),
            engines,
            shown_builds,
            publisher=publisher,
            by_builders=bool(publisher and builders),
            tell=partial(say, err=True),
        )
    unwanted = failing(prepared, selection.select, fail_on)
    cells = list(outcomes.build_cells(prepared, done.contexts, done.reports)) if as_json or reports else []
    if reports:
        from driverforge_build.report.cases import build_cases

        unanswered = {row.key for row in prepared.plan.rows if row.verdict.unanswered}
        names = {row.key for row in unwanted}
        reports.write("driverforge build", build_cases(cells, unwanted=names, unanswered=unanswered))
    if as_json:
        write_lines(_json_lines(cells, done.engine))
    elif plan_only or not done.reports:
        _print_plan(prepared)
    else:
        _print_reports(prepared, done.reports)
        if signing.unsigned_to:
            say(f"to sign: what the lists in {signing.unsigned_to} name; then --signatures with that folder")
    if times_path and not plan_only:
        compiled = {cell.key: cell.compiled for cell in prepared.plan.to_build()}
        merge = partial(merge_times, times_path, build_times(done.reports, compiled))
        if status := after_the_answer(merge):
            return status
    return exit_status(prepared.plan, done.reports, unwanted)


def _refuse(wrong: Mapping[str, object]) -> None:
    """Raises UsageError with the first message whose condition holds."""
    for message, condition in wrong.items():
        if condition:
            raise click.UsageError(message)


def _json_lines(cells: Sequence[BuildCell], engine: str) -> Iterator[str]:
    """One JSON document, a cell a line."""
    yield f'{{"schema": 1, "engine": {json.dumps(engine)}, "cells": ['
    for number, cell in enumerate(cells, start=1):
        yield json.dumps(cell) + ("," if number < len(cells) else "")
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
        say(f"{report.cell}  {report.result.value}  {_facts(report)}")
        places = report.pushed.lines() if report.pushed else (report.reference,) if report.image else ()
        for line in places:
            say(f"  {line}")
        if report.error:
            say(report.error.render(), err=True)
    for row in prepared.unbuildable:
        say(f"{row.key}  {row.verdict.state.value}  {row.verdict.reason}")


def _facts(report: CellReport) -> str:
    image, tried = report.image, len(report.attempts)
    facts = [
        *([f"{report.seconds:.0f} s"] if report.log else []),
        *([_size(image)] if image else []),
        *([f"after {tried} failed {'attempt' if tried == 1 else 'attempts'}"] if tried else []),
        *([f"log: {report.log}"] if report.error and report.log else []),
    ]
    return "  ".join(facts)
