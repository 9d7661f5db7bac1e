"""Images that have no driver, as data: the container toolkit's for nodes, and the operator's for the cluster.

They stand on the Python of a system of the matrix and have no verdict. Their ids begin with a word of their
own, so a glob that begins with one is for them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TypeAlias

from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.load import Matrix
from driverforge_build.matrix.model import Toolkit
from driverforge_build.matrix.select import CellT, select_cells
from driverforge_core import __version__

TOOLKIT, OPERATOR = PREFIXES = ("toolkit", "operator")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitCell:
    """A release for an architecture; `key` is what --select is compared with: 'toolkit-1.20.2-amd64'."""

    row: Toolkit
    arch: Arch

    @property
    def key(self) -> str:
        return f"{TOOLKIT}-{self.row.id}-{self.arch}"

    @property
    def system(self) -> str:
        return self.row.system


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCell:
    """The operator for an architecture; `key` is what --select is compared with: 'operator-0.1.0-amd64'.

    `wheels` maps names of files to their sha256.
    """

    arch: Arch
    system: str
    wheels: Mapping[str, str]

    @property
    def key(self) -> str:
        return f"{OPERATOR}-{__version__}-{self.arch}"


ProgramsCell: TypeAlias = ToolkitCell | OperatorCell


def toolkit_images(matrix: Matrix) -> tuple[ToolkitCell, ...]:
    """All that can be built."""
    return tuple(ToolkitCell(row=row, arch=arch) for row in matrix.toolkits for arch in row.archs)


@cache
def operator_images() -> tuple[OperatorCell, ...]:
    """All that can be built.

    This release of driverforge has one lock of wheels, since it has one operator: a site's matrix says
    nothing of it. Some wheels are compiled, so each architecture has its own.
    """
    text = files("driverforge_build").joinpath("data/operator-wheels.json").read_text(encoding="utf-8")
    data = json.loads(text)
    return tuple(
        OperatorCell(arch=arch, system=data["system"], wheels=wheels)
        for arch, wheels in sorted(data["wheels"].items())
    )


def all_images(matrix: Matrix) -> tuple[ProgramsCell, ...]:
    return (*toolkit_images(matrix), *operator_images())


def split_globs(select: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Globs for toolkit images, for operator images, and all others, which are for driver images."""
    toolkits, operators = (tuple(glob for glob in select if glob.startswith(prefix)) for prefix in PREFIXES)
    return toolkits, operators, tuple(glob for glob in select if not glob.startswith(PREFIXES))


def select_images(
    images: Sequence[CellT], *, select: Sequence[str], skip: Sequence[str] = ()
) -> tuple[CellT, ...]:
    """Those of `images` that were asked for; without a glob of theirs none.

    Raises UsageError where a glob matches none.
    """
    return select_cells(images, select=select, skip=skip) if select else ()
