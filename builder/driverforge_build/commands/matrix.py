"""`driverforge matrix validate`, `show` and `packages`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from driverforge_build.commands.shared.inputs import matrix_option, select_options
from driverforge_build.commands.shared.options import json_option
from driverforge_build.commands.shared.output import say
from driverforge_build.matrix.absent import why_absent
from driverforge_build.matrix.asked import asked_of_repositories
from driverforge_build.matrix.expand import driver_archs, jit_cells
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.globs import matching
from driverforge_build.matrix.load import Matrix, load_matrix
from driverforge_build.matrix.merge import near
from driverforge_build.matrix.select import select_cells
from driverforge_core.errors import UsageError
from driverforge_core.printable import printable

if TYPE_CHECKING:
    from driverforge_build.documents.plans import MatrixDocument

COLUMNS = ("os", "driver", "payload", "modules", "images", "archs", "kernels", "EOL", "defined in")


@click.group()
def command() -> None:
    """Check and show the catalogue of what can be built."""


@command.command(short_help="check a matrix file: every problem at once")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
def validate(file: Path | None) -> None:
    """Check FILE (default: the shipped catalogue): every problem at once as FILE:LINE.

    Exit status: 0, or 65 where there is a problem.
    """
    matrix = load_matrix(file)
    drivers = sum(len(row.drivers) for row in matrix.rows)
    say(
        f"{file or matrix.path.name}: valid; {len(matrix.rows)} operating systems, {drivers} drivers, "
        f"{len(jit_cells(matrix))} JIT cells"
    )


@command.command(short_help="show operating systems and their drivers")
@matrix_option
@select_options
@click.option(
    "--cells",
    is_flag=True,
    help="Only the ids of the cells that are known without `lock`: the JIT ones, one a line.",
)
@json_option
def show(
    matrix: Path | None, select: tuple[str, ...], skip: tuple[str, ...], cells: bool, as_json: bool
) -> None:
    """Show operating systems and drivers: what is made, from where, and which file and line says so.

    Exit status: 0, 64 where a glob matches no cell, 65 where the matrix is wrong.
    """
    read = load_matrix(matrix)
    chosen = jit_cells(read)
    if cells or select or skip:
        chosen = select_cells(
            chosen, select=select, skip=skip, why_none=lambda glob: filter(None, [why_absent(read, glob)])
        )
    keys = [cell.key for cell in chosen]
    if as_json:
        say(json.dumps(as_data(read, keys), indent=2))
    elif cells or select or skip:
        say("\n".join(keys))
    else:
        print_table(COLUMNS, table_rows(read))


@command.command(short_help="what images ask of repositories, a name a line")
@click.argument("systems", metavar="[OS]...", nargs=-1)
@matrix_option
@click.option("--arch", type=click.Choice(get_args(Arch)), help="Only this architecture. Default: all.")
def packages(systems: tuple[str, ...], matrix: Path | None, arch: Arch | None) -> None:
    """Show what images of each OS (a glob, default: all) ask of repositories, and what they download.

    For reading a row through, or filling a mirror. {release} is a kernel as `uname -r` says it, {plain} the
    same without its +variant, {kernel_version} without distribution and machine, {variant-} `64k-` or
    nothing. Packages that these depend on are found by `driverforge lock`.

    Exit status: 0, 64 where a glob matches no OS, 65 where the matrix is wrong.
    """
    read = load_matrix(matrix)
    names = [row.id for row in read.rows]
    for glob in systems:
        if not matching((glob,), names):
            raise UsageError(
                f"{glob!r} matches no operating system of the matrix{near(glob, names)}",
                resolution="look at `driverforge matrix show`",
            )
    wanted = matching(systems or ("*",), names)
    pages = [
        asked_of_repositories(read, row, one)
        for row in read.rows
        for one in row.archs
        if row.id in wanted and arch in (None, one)
    ]
    say("\n".join(pages).rstrip("\n"))


def as_data(matrix: Matrix, cells: Sequence[str]) -> MatrixDocument:
    """The matrix as JSON data: the rows of each section, each row's place, the ids of the JIT cells."""
    return {
        "schema": 1,
        "file": str(matrix.path),
        "systems": [row.model_dump(mode="json", exclude_none=True) for row in matrix.rows],
        "branches": [row.model_dump(mode="json", exclude_none=True) for row in matrix.branches],
        "gpus": [row.model_dump(mode="json") for row in matrix.gpus],
        "nvswitches": [row.model_dump(mode="json") for row in matrix.nvswitches],
        "exclusions": [row.model_dump(mode="json") for row in matrix.exclusions],
        "probes": [row.model_dump(mode="json", exclude_none=True) for row in matrix.probes],
        "origins": dict(matrix.origins),
        "cells": list(cells),
    }


def table_rows(matrix: Matrix) -> list[tuple[str, ...]]:
    """A row of COLUMNS for each driver of each OS."""
    rows: list[tuple[str, ...]] = []
    for system in matrix.rows:
        for driver in system.drivers:
            eol = matrix.branch(driver.branch).eol
            series = [line.id for line in system.kernels if driver.takes(line.id)]
            rows.append(
                (
                    system.id,
                    driver.version,
                    driver.payload + (" (vendor's modules)" if driver.vendor_modules else ""),
                    ", ".join(driver.module_types),
                    ", ".join(driver.variants),
                    ", ".join(driver_archs(matrix, system, driver)),
                    ", ".join(series),
                    "" if eol is None else eol.date or "ended",
                    matrix.origin("systems", f"{system.id}/{driver.id}"),
                )
            )
    return rows


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table with lines on a terminal; elsewhere columns that are aligned and nothing else."""
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for index, column in enumerate(columns):
            table.add_column(column, no_wrap=index < 2, overflow="fold")
        for row in rows:
            # as text: rich would read a [word] of a site's matrix as its own markup
            table.add_row(*(Text(printable(cell)) for cell in row))
        Console().print(table)
        return
    widths = [max(len(line[index]) for line in (columns, *rows)) for index in range(len(columns))]
    for line in (columns, *rows):
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
