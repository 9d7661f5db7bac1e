"""One run of discovery: suites of each OS, then pins of each target, then answers of header probes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from driverforge_build.discover.answers import header_facts, probes_for
from driverforge_build.discover.apt import Location, Suite, degraded, locate, read_packages, read_suite
from driverforge_build.discover.machine import Machine
from driverforge_build.discover.packages import PackageIndex
from driverforge_build.discover.pin import pin_target
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
class Settings:
    """What a run is told. `now` is UTC and aware; `mirrors` maps OS or OS/SUITE to an address."""

    now: datetime
    machine: Machine = field(default_factory=Machine)
    mirrors: Mapping[str, str] = field(default_factory=dict)
    keyrings: tuple[Path, ...] = ()
    accept_expired: bool = False
    accept_shrink: bool = False


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

    Raises TemporaryFailure where suites do not answer or a target shrank suspiciously, Untrusted,
    Unavailable.
    """
    found: list[TargetLock] = []
    problems: dict[str, DriverforgeError] = {}
    for row in {row.id: row for row, _ in targets}.values():
        suites = _read_suites(row, downloads, settings)
        for arch in (arch for other, arch in targets if other.id == row.id):
            mine = row.on(arch)
            drivers = [driver for driver in mine.drivers if arch in driver_archs(matrix, mine, driver)]
            index = PackageIndex()
            for suite in suites:
                read_packages(downloads, suite, arch, index)
            pinned = pin_target(index, mine, arch, drivers, [suite.locked(arch) for suite in suites])
            if not settings.accept_shrink:
                check_losses(earlier.target(row.id, arch), pinned.target)
            problems |= {
                f"{pinned.target.key} {version}": error for version, error in pinned.problems.items()
            }
            facts = header_facts(pinned.target, probes_for(matrix, drivers), suites, downloads)
            found.append(replace(pinned.target, header_facts=facts))
            log.info(
                "target=%s kernels=%d drivers=%d",
                pinned.target.key,
                len(pinned.target.kernels),
                len(pinned.target.drivers),
            )
    return Survey(lock=earlier.with_targets(found), problems=problems)


def _read_suites(row: OsRow, downloads: Downloads, settings: Settings) -> list[Suite]:
    locations = [
        locate(
            row, repository, mirrors=settings.mirrors, machine=settings.machine, keyrings=settings.keyrings
        )
        for repository in row.repositories
    ]

    def read(location: Location) -> Suite | TemporaryFailure:
        try:
            return read_suite(downloads, location, now=settings.now, accept_expired=settings.accept_expired)
        except TemporaryFailure as error:
            return error

    with ThreadPoolExecutor(WORKERS) as pool:
        results = list(zip(locations, pool.map(read, locations), strict=True))
    failures = {
        location.repository.id: result for location, result in results if isinstance(result, TemporaryFailure)
    }
    if failures:
        raise degraded(failures)
    return [result for _, result in results if isinstance(result, Suite)]
