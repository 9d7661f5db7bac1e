"""`driverforge plan`: each cell with its verdict."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.advice import Selection
from driverforge_build.commands.shared import adapters, inputs, options
from driverforge_build.commands.shared.output import say, write_lines

if TYPE_CHECKING:
    from driverforge_build.plan.rows import Plan
    from driverforge_build.plan.shards import Shard

_COLOURS = {"build": "green", "exists": "cyan", "blocked": "red", "unknown": "yellow"}


@click.command("plan")
@inputs.selection_options(inputs.base_option, inputs.certificate_option)
@options.registry_option
@click.option(
    "--github",
    is_flag=True,
    help="Print the cells to build as shards, the matrix of a GitHub workflow (`include`, one line).",
)
@click.option(
    "--gitlab",
    metavar="FILE",
    help="Print the shards as a GitLab child pipeline; FILE of your repository has the job "
    "`.driverforge-shard`, which each of them extends.",
)
@click.option(
    "--shards",
    "shards_dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write each shard's cells to DIR/NUMBER.txt, for `build --cells-from`.",
)
@click.option(
    "--max-jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Shards at most. Default: 256 for GitHub, 200 for GitLab, which take no more in one matrix.",
)
@click.option(
    "--minutes",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    metavar="N",
    help="About how long a shard shall take; the shared layers count once in each.",
)
@options.advisories_option
@options.times_option(written=False)
@options.report_options
@options.json_option
def command(
    *,
    selection: Selection,
    registry: options.Registry | None,
    github: bool,
    gitlab: str | None,
    shards_dir: Path | None,
    max_jobs: int | None,
    minutes: int,
    advisories: tuple[Path, ...],
    times_paths: tuple[Path, ...],
    reports: options.Reports,
    as_json: bool,
) -> int:
    """Show each cell with its verdict: build, exists, blocked, unknown.

    Nothing is downloaded: the lock file holds what discovery found. With --registry, the registry is asked
    for each image that would be built. --github and --gitlab print jobs instead, which build all cells with
    the verdict `build`: about as long each, and images that share layers in the same one (docs/ci).

    Exit status: 0 whatever the verdicts, 75 where the registry did not say whether it has an image; others as
    `driverforge --help` has them.
    """
    from driverforge_build.app.knowledge import read_knowledge
    from driverforge_build.plan import text

    if sum(map(bool, (github, gitlab, as_json))) > 1:
        raise click.UsageError("--github, --gitlab and --json each print something else: choose one")
    lookup_for = adapters.lookup_in(registry, selection.given, as_json=as_json)
    known = read_knowledge(selection, lookup_for, advisories=advisories)
    plan = known.plan(known.cells(selection.select, selection.skip))
    if reports:
        from driverforge_build.report.cases import plan_cases

        unanswered = {row.key for row in plan.rows if row.verdict.unanswered}
        reports.write("driverforge plan", plan_cases(text.documents(plan), unanswered))
    if github or gitlab or shards_dir:
        shards = _shards(
            plan, most=_most(max_jobs, github=github, gitlab=gitlab), minutes=minutes, times=times_paths
        )
        _print_shards(shards, shards_dir, github=github, gitlab=gitlab)
        return 75 if plan.degraded else 0
    if as_json:
        write_lines(text.json_lines(plan, known.lock, given=selection.given, made=datetime.now(timezone.utc)))
        return 75 if plan.degraded else 0
    write_lines(
        text.table(
            plan,
            style=lambda word, state: (
                click.style(word, fg=_COLOURS[state.value]) if sys.stdout.isatty() else word
            ),
        )
    )
    say("\n".join(["", *text.summary(plan), *text.classes(plan, known.lock, selection.given)]))
    return 75 if plan.degraded else 0


def _most(wanted: int | None, *, github: bool, gitlab: str | None) -> int:
    """Shards at most. A CI system refuses a matrix that has more than it takes, whatever was wanted."""
    from driverforge_build.plan.shards import GITHUB_JOBS, GITLAB_JOBS

    limit = GITLAB_JOBS if gitlab else GITHUB_JOBS
    if wanted and not (github or gitlab):
        return wanted
    return min(wanted or limit, limit)


def _shards(plan: Plan, *, most: int, minutes: int, times: tuple[Path, ...]) -> tuple[Shard, ...]:
    from driverforge_build.plan.shards import deal_for
    from driverforge_build.plan.times import read_times

    return deal_for(plan.to_build(), read_times(times), seconds=minutes * 60, most=most)


def _print_shards(
    shards: tuple[Shard, ...], folder: Path | None, *, github: bool, gitlab: str | None
) -> None:
    from driverforge_build.report.pipelines import github_matrix, gitlab_pipeline, write_lists

    if folder:
        write_lists(shards, folder)
    if github:
        say(github_matrix(shards, folder))
    elif gitlab:
        say(gitlab_pipeline(shards, folder, gitlab))
    else:
        for shard in shards:
            say(f"{shard.number}/{shard.of}  {shard.name}  about {max(1, round(shard.seconds / 60))} min")
    if not shards:
        say("nothing to build", err=True)
