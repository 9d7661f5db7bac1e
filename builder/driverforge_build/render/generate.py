"""Cells to folders: what `generate` writes for people, and `build` for itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from driverforge_build import resources
from driverforge_build.advice import Given
from driverforge_build.lock import Lock
from driverforge_build.matrix import Cell, Matrix
from driverforge_build.render.bake import bake_text
from driverforge_build.render.context import Context, context_of, write_context
from driverforge_build.render.spec import image_specs, missing_pins
from driverforge_build.render.toolkit import ToolkitCell, toolkit_specs
from driverforge_core.errors import StorageFailed

BAKE_FILE = "docker-bake.json"


def renderable(
    cells: Iterable[Cell], lock: Lock, *, named: bool
) -> tuple[tuple[Cell, ...], dict[str, tuple[str, ...]]]:
    """The cells to render: not excluded by the matrix and, where the user named none, of an OS and architecture in the lock.

    Of those that the user did not name, cells that are left out because a pin is missing are the second value, with what is missing.
    Where that leaves none, all of them are to be rendered: what renders them says what to do.
    """
    wanted = tuple(
        cell for cell in cells if cell.excluded is None and (named or lock.target(cell.os.id, cell.arch))
    )
    if named:
        return wanted, {}
    missing = {cell.key: _lacking(cell, lock) for cell in wanted}
    left = tuple(cell for cell in wanted if not missing[cell.key])
    return (left, {key: lacking for key, lacking in missing.items() if lacking}) if left else (wanted, {})


def _lacking(cell: Cell, lock: Lock) -> tuple[str, ...]:
    return (
        ("payload `image` cannot be built by this version",)
        if cell.driver.payload == "image"
        else tuple(missing_pins(cell, lock))
    )


def contexts_of(cells: Iterable[Cell], lock: Lock, *, given: Given) -> tuple[Context, ...]:
    """The contexts of cells. Raises InputError where a download has no pin."""
    folder = resources.templates()
    return tuple(context_of(image, folder) for image in image_specs(cells, lock, given=given))


def toolkit_contexts(
    cells: Iterable[ToolkitCell], matrix: Matrix, lock: Lock, *, given: Given
) -> tuple[Context, ...]:
    """The contexts of toolkit images. Raises InputError where NVIDIA's files, or a pin, are missing."""
    folder = resources.templates()
    return tuple(context_of(image, folder) for image in toolkit_specs(cells, matrix, lock, given=given))


def write_all(contexts: Sequence[Context], output: Path, *, vcs_ref: str = "", network: str = "") -> Path:
    """Write each context to OUTPUT/<cell> and the bake file of them all; returns the bake file.

    Folders of other cells are left alone. Raises StorageFailed.
    """
    for context in contexts:
        write_context(context, output / context.image.id)
    bake_file = output / BAKE_FILE
    try:
        bake_file.write_text(bake_text(contexts, vcs_ref=vcs_ref, network=network), encoding="utf-8")
    except OSError as error:
        raise StorageFailed(
            f"{bake_file} cannot be written: {error.strerror}", resolution="give another --output"
        ) from error
    return bake_file
