"""The architectures that one alias stands for, found in the matrix and the lock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from driverforge_build.advice import Given
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import Cell
from driverforge_build.publish.upload import FamilyOf
from driverforge_build.render.context import BuildContext, driver_contexts
from driverforge_build.render.needs import missing_pins
from driverforge_build.render.programs import ProgramsSpec


def families(
    cells: Iterable[Cell], toolkits: Sequence[BuildContext], lock: Lock, *, given: Given
) -> FamilyOf:
    """How the family of an image is found. `cells` are all of the matrix, whichever were selected.

    Those without pins are no members: their images cannot have been built from this lock.
    """
    by_alias: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        if cell.excluded is None:
            by_alias.setdefault(_names(cell), []).append(cell)

    def family_of(context: BuildContext) -> Sequence[BuildContext]:
        image = context.image
        if isinstance(image, ProgramsSpec):
            return [
                one
                for one in toolkits
                if (one.image.repository, one.image.alias_tag) == (image.repository, image.alias_tag)
            ]
        found = by_alias.get((image.os, str(image.branch), image.kernel), [])
        others = [cell for cell in found if cell.arch != image.arch and not missing_pins(cell, lock)]
        made = driver_contexts(others, lock, given=given)
        return (context, *(one for one in made if one.image.alias_tag == image.alias_tag))

    return family_of


def _names(cell: Cell) -> tuple[str, str, str]:
    """What an alias is made of, as far as all architectures have it alike."""
    return cell.os.id, str(int(cell.driver.branch)), str(cell.kernel or "")
