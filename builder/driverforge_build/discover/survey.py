"""One run of discovery: repositories of each OS, then pins of each target, then answers of header probes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from driverforge_build.discover.answers import header_facts, probes_for
from driverforge_build.discover.manager import Place, VerifiedRepository, metadata_of
from driverforge_build.discover.pin import pin_target
from driverforge_build.discover.settings import Settings
from driverforge_build.lock.compare import check_losses
from driverforge_build.lock.pins import Lock, TargetLock
from driverforge_build.matrix.expand import driver_archs
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.load import Matrix
from driverforge_build.matrix.model import OsRow
from driverforge_build.ports import Downloads
from driverforge_core.errors import DriverforgeError, TemporaryFailure

WORKERS = 4
log = logging.getLogger(__name__)

Target = tuple[OsRow, Arch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a run found: the whole lock, and the drivers that could not be pinned.

    `problems` maps 'debian12-amd64 535.261.03' to the reason.
    """

    lock: Lock
    problems: Mapping[str, DriverforgeError]


def survey(
    matrix: Matrix, targets: Sequence[Target], earlier: Lock, downloads: Downloads, settings: Settings
) -> Survey:
    """Discover targets and merge them into an earlier lock.

    Raises TemporaryFailure where repositories do not answer or a target shrank suspiciously, Untrusted,
    Unavailable.
    """
    found: list[TargetLock] = []
    problems: dict[str, DriverforgeError] = {}
    read: dict[Place, VerifiedRepository] = {}
    for row, arch in targets:
        mine = row.on(arch)
        metadata = metadata_of(row)
        repositories = _read_all(metadata.locate(mine, arch, settings), read, downloads, settings)
        index = metadata.new_index()
        for repository in repositories:
            repository.add_packages(index, arch, downloads)
        drivers = [driver for driver in mine.drivers if arch in driver_archs(matrix, mine, driver)]
        kernels = metadata.find_kernels(index, mine, arch)
        pinned = pin_target(index, mine, arch, drivers, kernels)
        target = replace(pinned.target, repositories=tuple(one.locked(arch) for one in repositories))
        if not settings.accept_shrink:
            check_losses(earlier.target(row.id, arch), target)
        problems |= {f"{target.key} {version}": error for version, error in pinned.problems.items()}
        addresses = {one.id: one.address for one in repositories}
        facts = header_facts(target, probes_for(matrix, drivers), metadata.has_headers, addresses, downloads)
        found.append(replace(target, header_facts=facts))
        log.info("target=%s kernels=%d drivers=%d", target.key, len(target.kernels), len(target.drivers))
    return Survey(lock=earlier.with_targets(found), problems=problems)


def _read_all(
    places: Sequence[Place], read: dict[Place, VerifiedRepository], downloads: Downloads, settings: Settings
) -> list[VerifiedRepository]:
    """The repositories at some places. `read` holds those that another architecture of the run needed."""

    def attempt(place: Place) -> VerifiedRepository | TemporaryFailure:
        try:
            return place.read(downloads, settings)
        except TemporaryFailure as error:
            return error

    new = [place for place in places if place not in read]
    with ThreadPoolExecutor(WORKERS) as pool:
        results = dict(zip(new, pool.map(attempt, new), strict=True))
    failures = {place.id: result for place, result in results.items() if isinstance(result, TemporaryFailure)}
    if failures:
        raise degraded(failures)
    read |= {place: result for place, result in results.items() if not isinstance(result, TemporaryFailure)}
    return [read[place] for place in places]


def degraded(failures: Mapping[str, TemporaryFailure]) -> TemporaryFailure:
    """One error for the repositories that do not answer now."""
    again = "run the same command again later, or with --offline to use what the cache holds"
    steps = dict.fromkeys(error.resolution for error in failures.values())
    return TemporaryFailure(
        f"discovery is degraded: {len(failures)} of the repositories cannot be read now "
        f"({', '.join(failures)})",
        details=[
            line for name, error in failures.items() for line in (f"{name}: {error.brief}", *error.details)
        ],
        resolution="; ".join([*(step for step in steps if not again.startswith(step)), again]),
    )
