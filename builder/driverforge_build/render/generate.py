"""Cells to folders: what `generate` writes for people, and `build` for itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from driverforge_build import resources
from driverforge_build.lock import Lock
from driverforge_build.matrix import Cell
from driverforge_build.render.bake import bake_text
from driverforge_build.render.context import Context, context_of, write_context
from driverforge_build.render.spec import image_specs
from driverforge_core.errors import StorageFailed, UsageError

BAKE_FILE = "docker-bake.json"


def contexts_of(cells: Iterable[Cell], lock: Lock, *, bases: Mapping[str, str], lock_path: Path) -> tuple[Context, ...]:
    """The contexts of cells. Raises InputError where a download has no pin, UsageError for a base of an OS that is not among them."""
    chosen = tuple(cells)
    stray = sorted(bases.keys() - {cell.os.id for cell in chosen})
    if stray:
        raise UsageError(
            f"--base names {', '.join(stray)}, and no selected cell is of that OS",
            resolution=f"write one of {', '.join(sorted({cell.os.id for cell in chosen}))}",
        )
    return tuple(context_of(image, resources.templates()) for image in image_specs(chosen, lock, bases=bases, lock_path=str(lock_path)))


def write_all(contexts: Sequence[Context], output: Path, *, vcs_ref: str = "") -> Path:
    """Write each context to OUTPUT/<cell> and the bake file of them all; returns the bake file.

    Folders of other cells are left alone. Raises StorageFailed.
    """
    for context in contexts:
        write_context(context, output / context.image.id)
    bake_file = output / BAKE_FILE
    try:
        bake_file.write_text(bake_text(contexts, vcs_ref=vcs_ref), encoding="utf-8")
    except OSError as error:
        raise StorageFailed(f"{bake_file} cannot be written: {error.strerror}", resolution="give another --output") from error
    return bake_file
