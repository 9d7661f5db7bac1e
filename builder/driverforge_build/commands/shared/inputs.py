"""Options that say which cells a command is about, and what these are made from."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

import click

from driverforge_build.advice import LOCK_FILE, Given, Selection
from driverforge_build.commands.shared.options import Command, Option, gathered, pairs


def given_options(*more: Option) -> Option:
    """--matrix, --lock and `more` of what images are made from; the command gets all of it as `given`."""
    return gathered("given", Given, matrix_option, lock_option, *more)


def selection_options(*more: Option) -> Option:
    """As given_options, and which cells; the command gets all of it as `selection`."""

    def decorated(function: Command) -> Command:
        return given_options(select_options, *more)(gathered("selection", Selection)(function))

    return decorated


matrix_option = click.option(
    "--matrix",
    "matrix",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Your matrix file (it may say `extends: builtin`). Default: the shipped catalogue.",
)
lock_option = click.option(
    "--lock",
    "lock",
    type=click.Path(path_type=Path, dir_okay=False),
    default=LOCK_FILE,
    show_default=True,
    metavar="FILE",
    help="The lock file: every download, pinned by path and sha256.",
)


def _selected(*, select: tuple[str, ...], cells_from: tuple[str, ...]) -> tuple[str, ...]:
    return (*select, *cells_from)


def listed_cells(_: click.Context, parameter: click.Parameter, file: TextIO | None) -> tuple[str, ...]:
    """The ids of a list; `#` starts a comment. A list of nothing must not select everything."""
    if file is None:
        return ()
    try:
        with file:
            lines = [line.partition("#")[0].strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{file.name} cannot be read: {error}", param=parameter) from error
    cells = tuple(dict.fromkeys(line for line in lines if line))
    if not cells:
        raise click.BadParameter(f"{file.name} names no cell", param=parameter)
    return cells


select_options = gathered(
    "select",
    _selected,
    click.option(
        "--select",
        multiple=True,
        metavar="GLOB",
        help="Only cells whose id matches, e.g. 'debian12-*-jit'; may be repeated.",
    ),
    click.option(
        "--skip", multiple=True, metavar="GLOB", help="Leave out cells whose id matches; may be repeated."
    ),
    click.option(
        "--cells-from",
        type=click.File(encoding="utf-8"),
        metavar="FILE",
        callback=listed_cells,
        help="Only the cells of a file, an id a line; - is standard input. As `plan --shards` writes them.",
    ),
)
"""The command gets `select` with the cells of the file in it, and `skip`."""


def _bases(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """OS=REF as a dict, each REF as strict as `base:` in a matrix: it stands in a Dockerfile too."""
    found = pairs("OS=REF")(context, parameter, values)
    if found:
        from pydantic import TypeAdapter, ValidationError

        from driverforge_build.matrix.fields import ImageRef

        try:
            TypeAdapter(dict[str, ImageRef]).validate_python(found)
        except ValidationError as error:
            raise click.BadParameter(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
    return found


base_option = click.option(
    "--base",
    "bases",
    multiple=True,
    metavar="OS=REF",
    callback=_bases,
    help="Base image for an OS, e.g. debian12=registry.site/debian:bookworm.",
)
certificate_option = click.option(
    "--sign-certificate",
    "certificate",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    envvar="DRIVERFORGE_SIGN_CERTIFICATE",
    help="Certificate (PEM or DER) of the key that signs kernel modules. With another one, or none, an "
    "image is another image.",
)
artifacts_option = click.option(
    "--toolkit-artifacts",
    "artifacts",
    multiple=True,
    metavar="ARCH=DIR",
    callback=pairs("ARCH=DIR"),
    help="NVIDIA's files for the image toolkit-*-ARCH: a folder with deb/ and rpm/, as /artifacts of "
    "NVIDIA's own image.",
)
wheels_option = click.option(
    "--operator-wheels",
    "wheels",
    multiple=True,
    metavar="ARCH=DIR",
    callback=pairs("ARCH=DIR"),
    help="Python wheels for the image operator-*-ARCH: a folder that pip filled (docs/operator-image.md).",
)
