"""`driverforge index`: the moving tags of all architectures, and the list of covered kernels."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driverforge_build.advice import Selection
from driverforge_build.commands.shared import adapters, inputs, options
from driverforge_build.commands.shared.output import after_the_answer, say
from driverforge_build.commands.shared.signoptions import verifier_option

if TYPE_CHECKING:
    from driverforge_build.app.index import JoinReport
    from driverforge_build.documents.images import IndexDocument


@click.command("index")
@inputs.selection_options(
    inputs.base_option, inputs.certificate_option, inputs.artifacts_option, inputs.wheels_option
)
@click.option(
    "--registry",
    required=True,
    metavar=options.REGISTRY,
    callback=options.check_registry,
    help="Where the images are: HOST[:PORT]/PATH/driver:TAG.",
)
@click.option(
    "--covered",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Add the kernels that have an image now to FILE (covered.json); what it has of others stays.",
)
@click.option(
    "--tested",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    callback=inputs.listed_cells,
    help="Cells whose images passed a test of yours, an id a line: told in the file of --covered.",
)
@click.option(
    "--attested",
    is_flag=True,
    help="Images whose newest test result in the registry is a pass are tested, too (`verify --attest`).",
)
@verifier_option
@options.json_option
def command(
    *,
    selection: Selection,
    registry: options.Registry,
    covered: Path | None,
    tested: tuple[str, ...],
    attested: bool,
    verifier: tuple[str, ...],
    as_json: bool,
) -> int:
    """Let each alias stand for the images of all its architectures that the registry has.

    The last step of a pipeline, after the jobs that pushed. It may run at any time, several times and beside
    others: it looks at the immutable tags, and no entry is lost. An alias that would stand for two driver
    versions is left as it is, and both are named. Takes the same --matrix, --lock, --base,
    --sign-certificate and --toolkit-artifacts as `build`.

    Exit status: 0; 1 where an alias failed, or a cell that --select names in full cannot be had; 75 where the
    registry did not answer for one, 77 where it refuses the login; others as `driverforge --help` has them.
    """
    from driverforge_build.app.index import covered_images, join_all, listed_or_attested
    from driverforge_build.app.prepare import exit_status, failing, prepare
    from driverforge_build.report.covered import merge_covered, read_covered
    from driverforge_build.sharedfile import make_folder_of

    if attested and covered is None:
        raise click.UsageError("--attested needs --covered: it is told in that file")
    if covered:
        make_folder_of(covered, option="--covered")
        read_covered(covered)
    prepared = prepare(selection)
    publisher = adapters.publisher(registry, adapters.engine(), prepared, as_json=as_json)
    reports = join_all(prepared.contexts(), publisher)
    unwanted = failing(prepared, selection.select)
    for row in unwanted:
        say(f"{row.key}  {row.verdict.state.value}  {row.verdict.reason}", err=True)
    merge = None
    if covered:
        passed = listed_or_attested(
            frozenset(tested), publisher.client if attested else None, adapters.verifier(verifier)
        )
        now = covered_images(reports, publisher, passed)
        merge = partial(merge_covered, covered, now.images, failed=now.failed)
    if as_json:
        say(json.dumps(_document(reports), indent=1))
    else:
        _print(reports)
    if merge and (status := after_the_answer(merge)):
        return status
    failed = {report.error.exit_code for report in reports if report.error}
    if failed:
        return failed.pop() if failed in ({75}, {77}) else 1
    return exit_status(prepared.plan, (), unwanted)


def _print(reports: Sequence[JoinReport]) -> None:
    # what a registry says of the login, it says of each alias
    told = Counter(report.error.brief for report in reports if report.error)
    for report in reports:
        if report.error and (times := told.pop(report.error.brief, 0)):
            say(report.error.render(), err=True)
            if times > 1:
                say(f"  and the same of {times - 1} more", err=True)
        elif report.joined and report.joined.digest:
            platforms = ", ".join(report.joined.images)
            say(f"{report.alias}  {'moved' if report.joined.moved else 'as it was'}  {platforms}")
        for cell in report.missing if report.joined else ():
            say(f"{cell}: the registry does not have its image", err=True)


def _document(reports: Sequence[JoinReport]) -> IndexDocument:
    from driverforge_build.documents.failures import failure

    return {
        "schema": 1,
        "aliases": [report.document(report.joined) for report in reports if report.joined],
        "failed": {str(report.alias): failure(report.error) for report in reports if report.error},
    }
