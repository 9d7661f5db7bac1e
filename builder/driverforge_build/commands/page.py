"""`driverforge page`: which images there are, as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import click

from driverforge_build.commands.shared.output import say


@click.command("page")
@click.argument("documents", metavar="DOCUMENT...", nargs=-1, required=True, type=click.File("rb", lazy=True))
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="The HTML file; it needs no other file, and no network.",
)
def command(*, documents: tuple[BinaryIO, ...], output: Path) -> int:
    """Show which images there are as a web page: system, kernel, driver, with the evidence.

    Made of what other commands wrote, so nothing is asked again: `plan --json` and, in any order, the
    covered.json of `index`, and what `build --json` and `verify --json` printed. - is standard input.

    Exit status: 0; 64 where no plan is among the documents, or two, or it is too large for a page; 65 where a
    file is none of these; others as `driverforge --help` has them.
    """
    from driverforge_build.report.coverage import coverage
    from driverforge_build.report.printed import read_documents
    from driverforge_build.report.webpage import page_text
    from driverforge_build.sharedfile import replace_text

    covered = coverage(read_documents((file.name, file.read()) for file in documents))
    text = page_text(covered)
    replace_text(output, text, option="--output")
    say(f"{output}  {covered.count.total()} images  {len(text.encode()) / 1e6:.1f} MB")
    return 0
