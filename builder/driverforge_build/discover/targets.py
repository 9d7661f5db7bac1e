"""Which OSes and architectures a run of discovery is about.

Kernels are not known before it, so globs match by what they may become.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence

from driverforge_build.discover.survey import Target
from driverforge_build.lock.pins import Lock, archive_key
from driverforge_build.matrix.absent import why_absent
from driverforge_build.matrix.expand import driver_archs
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.globs import expand_braces, glob_set
from driverforge_build.matrix.load import Matrix
from driverforge_build.matrix.model import OsRow
from driverforge_build.matrix.programcells import PREFIXES, all_images
from driverforge_build.nvidia.published import Wanted
from driverforge_core.arch import to_machine
from driverforge_core.cell import JIT
from driverforge_core.errors import UsageError

_TOKEN = re.compile(r"\[[^\]]+\]|.", re.DOTALL)


def wanted_targets(matrix: Matrix, *, select: Sequence[str], skip: Sequence[str]) -> list[Target]:
    """The targets with a cell that `select` may match and `skip` does not match whole.

    Raises UsageError where no target fits.
    """
    toolkits = _systems_of_others(matrix, select, skip)
    fitting = [
        (row, arch)
        for row in matrix.rows
        for arch in row.archs
        if (row.id, arch) in toolkits
        or any(
            _wanted(f"{row.id}-{arch}-{driver.version}-", select, skip)
            for driver in row.drivers
            if arch in driver_archs(matrix, row, driver)
        )
    ]
    if not fitting:
        raise UsageError(
            f"--select {' '.join(select) or '*'} {('--skip ' + ' '.join(skip)) if skip else ''}".strip()
            + " leaves nothing to lock",
            details=[
                *filter(None, (why_absent(matrix, glob) for glob in select)),
                f"systems: {' '.join(row.id for row in matrix.rows)}",
            ],
            resolution="look at `driverforge matrix show`",
        )
    return fitting


def asking_vendors(
    matrix: Matrix, targets: Iterable[Target], earlier: Lock, *, select: Sequence[str], skip: Sequence[str]
) -> list[Target]:
    """The targets, without the repositories of vendors that nothing selected takes anything from.

    Such as NVIDIA's, where only drivers that were not selected have the fabric manager from there. What the
    lock holds of a repository is not lost: that one is asked.
    """
    return [
        (row, arch)
        if _asks(matrix, row, arch, earlier, select=select, skip=skip)
        else (row.without_vendors(), arch)
        for row, arch in targets
    ]


def _asks(
    matrix: Matrix, row: OsRow, arch: Arch, earlier: Lock, *, select: Sequence[str], skip: Sequence[str]
) -> bool:
    known = earlier.target(row.id, arch)
    if known and any(map(known.suite, row.on(arch).vendors)):
        return True
    return any(
        set(driver.repositories) & row.vendors
        or (row.fabric_of(driver) and _wanted(f"{row.id}-{arch}-{driver.version}-", select, skip))
        for driver in row.drivers
        if arch in driver_archs(matrix, row, driver)
    )


def wanted_archives(
    matrix: Matrix, targets: Iterable[Target], *, select: Sequence[str], skip: Sequence[str]
) -> tuple[Wanted, ...]:
    """NVIDIA's archives that cells of the targets need which `select` may match and `skip` does not.

    One for each driver and architecture. Where one row has no sha256 of its own, that row's is looked for.
    """
    found: dict[str, Wanted] = {}
    for row, arch in targets:
        for driver in row.drivers:
            prefix = f"{row.id}-{arch}-{driver.version}-"
            if driver.payload != "runfile" or arch not in driver_archs(matrix, row, driver):
                continue
            if not _wanted(prefix, select, skip):
                continue
            wanted = Wanted(
                version=driver.version,
                arch=arch,
                url=driver.runfile_url(to_machine(arch)),
                sha256=driver.sha256.get(arch, ""),
            )
            key = archive_key(wanted.version, arch)
            if key not in found or not wanted.sha256:
                found[key] = wanted
    return tuple(found.values())


def _systems_of_others(matrix: Matrix, select: Sequence[str], skip: Sequence[str]) -> set[tuple[str, str]]:
    """Whose packages the toolkit's and the operator's images need that `select` names: their Python."""
    wanted = glob_set(tuple(glob for glob in select if glob.startswith(PREFIXES)))
    unwanted = glob_set(tuple(skip))
    return {
        (cell.system, cell.arch) for cell in all_images(matrix) if wanted(cell.key) and not unwanted(cell.key)
    }


def may_match(glob: str, beginning: str) -> bool:
    """Whether some text that begins so matches a glob."""
    return any(_alive(_TOKEN.findall(one), beginning) for one in expand_braces(glob))


def _wanted(prefix: str, select: Sequence[str], skip: Sequence[str]) -> bool:
    if select and not any(may_match(glob, prefix) for glob in select):
        return False
    examples = (f"{prefix}{JIT}", f"{prefix}0.0.0-0-any")
    return not any(
        all(fnmatch.fnmatchcase(example, one) for example in examples)
        for glob in skip
        for one in expand_braces(glob)
    )


def _alive(tokens: list[str], text: str) -> bool:
    """Whether a glob's tokens, matched from the left, have not failed when the text ends."""
    states = _past_stars({0}, tokens)
    for character in text:
        ahead = set()
        for state in states:
            wanted = tokens[state] if state < len(tokens) else ""
            if wanted == "*":
                ahead.add(state)
            elif wanted and fnmatch.fnmatchcase(character, wanted):
                ahead.add(state + 1)
        states = _past_stars(ahead, tokens)
    return bool(states)


def _past_stars(states: set[int], tokens: list[str]) -> set[int]:
    """The states and those behind the stars that follow them, since a star may stand for nothing."""
    found: set[int] = set()
    for state in states:
        found.add(state)
        found.update(
            range(
                state + 1,
                next((end for end in range(state, len(tokens)) if tokens[end] != "*"), len(tokens)) + 1,
            )
        )
    return found
