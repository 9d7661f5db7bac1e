"""One run of discovery: the suites of each OS, then the pins of each target, then the answers of header probes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from driverforge_build.lock import HeaderFact, Lock, LockedPackage, TargetLock
from driverforge_build.matrix.expand import driver_archs
from driverforge_build.matrix.load import Matrix
from driverforge_build.matrix.model import Arch, DriverRow, OsRow
from driverforge_build.probes import HeaderTexts, answers, header_probe
from driverforge_core.errors import DriverforgeError, TemporaryFailure
from driverforge_core.headerprobe import HeaderProbe

from . import guard
from .apt import Location, Suite, degraded, locate, read_packages, read_suite
from .fetch import Blob, Fetcher
from .packages import Catalogue
from .pin import pin_target
from .sources import Machine

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
    """What a run found: the whole lock, and the drivers that could not be pinned ('debian12-amd64 535.261.03' -> why)."""

    lock: Lock
    problems: Mapping[str, DriverforgeError]


def survey(
    matrix: Matrix, targets: Sequence[Target], earlier: Lock, fetcher: Fetcher, settings: Settings
) -> Survey:
    """Discover targets and merge them into an earlier lock.

    Raises TemporaryFailure where suites do not answer or a target shrank suspiciously, Untrusted, Unavailable.
    """
    found: list[TargetLock] = []
    problems: dict[str, DriverforgeError] = {}
    for row in {row.id: row for row, _ in targets}.values():
        suites = _read_suites(row, fetcher, settings)
        for arch in (arch for other, arch in targets if other.id == row.id):
            drivers = [driver for driver in row.drivers if arch in driver_archs(matrix, row, driver)]
            catalogue = Catalogue()
            for suite in suites:
                read_packages(fetcher, suite, arch, catalogue)
            pinned = pin_target(catalogue, row, arch, drivers, [suite.locked(arch) for suite in suites])
            if not settings.accept_shrink:
                guard.check(earlier.target(row.id, arch), pinned.target)
            problems |= {
                f"{pinned.target.key} {version}": error for version, error in pinned.problems.items()
            }
            facts = _facts(pinned.target, _probes(matrix, drivers), suites, fetcher)
            found.append(replace(pinned.target, header_facts=facts))
            log.info(
                "target=%s kernels=%d drivers=%d",
                pinned.target.key,
                len(pinned.target.kernels),
                len(pinned.target.drivers),
            )
    return Survey(lock=earlier.with_targets(found), problems=problems)


def _read_suites(row: OsRow, fetcher: Fetcher, settings: Settings) -> list[Suite]:
    locations = [
        locate(
            row, repository, mirrors=settings.mirrors, machine=settings.machine, keyrings=settings.keyrings
        )
        for repository in row.repositories
    ]

    def read(location: Location) -> Suite | TemporaryFailure:
        try:
            return read_suite(fetcher, location, now=settings.now, accept_expired=settings.accept_expired)
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


def _probes(matrix: Matrix, drivers: Iterable[DriverRow]) -> list[HeaderProbe]:
    """The questions that concern one of the drivers."""
    branches = {driver.branch for driver in drivers}
    return [
        header_probe(row)
        for row in matrix.probes
        if branches & {concerned.branch for concerned in row.drivers}
    ]


def _facts(
    target: TargetLock, probes: Sequence[HeaderProbe], suites: Sequence[Suite], fetcher: Fetcher
) -> dict[str, dict[str, HeaderFact]]:
    """Answers by header package. Only packages for all architectures are read: they hold include/linux."""
    packages = {
        package.key: package
        for kernel in target.kernels.values()
        for package in kernel.headers
        if package.arch == "all"
    }
    headers = sorted({probe.header for probe in probes})
    pools = {suite.location.repository.id: suite.location for suite in suites}
    texts = HeaderTexts(fetcher.cache)

    def ask(package: LockedPackage) -> dict[str, HeaderFact]:
        members = texts.kept(package.sha256, headers)
        while members is None:
            deb = fetcher.blob(
                Blob(
                    urls=(pools[package.suite].pool(package.path),), sha256=package.sha256, size=package.size
                )
            )
            try:
                members = texts.read(package.sha256, deb, headers)
                deb.unlink(missing_ok=True)
            except (
                FileNotFoundError
            ):  # another run that shares the cache has read the package, and removed it
                members = texts.kept(package.sha256, headers)
        return answers(probes, members)

    if not headers:
        return {}
    with ThreadPoolExecutor(WORKERS) as pool:
        return dict(zip(packages, pool.map(ask, packages.values()), strict=True))
