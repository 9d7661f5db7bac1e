"""One run of discovery: repositories of each OS, then pins of each target, then answers of header probes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from driverforge_build.discover.answers import header_facts, probes_for
from driverforge_build.discover.entitlement import closed_repositories, left_out, needs
from driverforge_build.discover.manager import Place, VerifiedRepository, metadata_of
from driverforge_build.discover.pin import Pinned, pin_target
from driverforge_build.discover.settings import Nowhere, Settings
from driverforge_build.lock.compare import check_losses
from driverforge_build.lock.pins import Lock, TargetLock
from driverforge_build.matrix.expand import driver_archs
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.load import Matrix
from driverforge_build.matrix.model import OsRow
from driverforge_build.ports import Downloads, NotThere
from driverforge_core.errors import DriverforgeError, TemporaryFailure, Unavailable

WORKERS = 4
log = logging.getLogger(__name__)

Target = tuple[OsRow, Arch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a run found: the targets that were read, by key, and what became of the others.

    `problems` maps what could not be pinned, a driver ('debian12-amd64 535.261.03') or a whole target, to the
    reason. `nowhere` does that for targets ('rhel9-amd64') whose repositories nobody named or opened,
    `degraded` for those whose repositories cannot be read now. `closed` are targets that were read without
    the repositories of a subscription, with what they lack.
    """

    targets: Mapping[str, TargetLock]
    problems: Mapping[str, DriverforgeError]
    nowhere: Mapping[str, Unavailable]
    degraded: Mapping[str, TemporaryFailure]
    closed: Mapping[str, Nowhere]


def survey(
    matrix: Matrix, targets: Sequence[Target], earlier: Lock, downloads: Downloads, settings: Settings
) -> Survey:
    """Discover targets. `earlier` is what the shrink guard compares them with.

    A target whose repositories cannot be read now, that shrank suspiciously, or of which nothing says where
    its repositories are, is left out. Where all are, the first one's error is raised. Raises Untrusted,
    Unavailable, InputError.
    """
    found: list[TargetLock] = []
    problems: dict[str, DriverforgeError] = {}
    read: dict[Place, VerifiedRepository] = {}
    located, nowhere = _located(targets, settings)
    failed: dict[str, TemporaryFailure] = {}
    closed: dict[str, Nowhere] = {}
    for row, arch, places in located:
        key = f"{row.id}-{arch}"
        known = earlier.target(row.id, arch)
        try:
            repositories, refused = _read_all(row, places, read, downloads, settings)
            if shut := closed_repositories(row, (one.id for one in repositories)):
                lacking = left_out(row, arch, shut, refused)
                if not repositories or (known and any(map(known.suite, shut))):
                    raise lacking
                closed[key] = lacking
            pinned = _pinned(matrix, row, arch, repositories, downloads)
            if not settings.accept_shrink:
                check_losses(known, pinned.target)
        except Nowhere as error:
            nowhere[key] = error
            continue
        except NotThere as error:
            problems[key] = error
            continue
        except TemporaryFailure as error:
            failed[key] = error
            continue
        explained = {driver.version for driver in row.drivers if needs(driver, shut)}
        problems |= {
            f"{key} {version}": error
            for version, error in pinned.problems.items()
            if version not in explained
        }
        found.append(pinned.target)
        log.info(
            "target=%s kernels=%d drivers=%d", key, len(pinned.target.kernels), len(pinned.target.drivers)
        )
    if not found and (errors := [*failed.values(), *problems.values(), *nowhere.values()]):
        raise errors[0]
    return Survey(
        targets={target.key: target for target in found},
        problems=problems,
        nowhere=nowhere,
        degraded=failed,
        closed=closed,
    )


def closed_targets(targets: Sequence[Target], settings: Settings) -> dict[str, Nowhere]:
    """Targets that lack a subscription's repositories, as far as that is known before anything is asked."""
    lacking = [
        (row, arch, closed_repositories(row, (place.id for place in places)))
        for row, arch, places in _located(targets, settings)[0]
    ]
    return {f"{row.id}-{arch}": left_out(row, arch, shut, {}) for row, arch, shut in lacking if shut}


def _located(
    targets: Sequence[Target], settings: Settings
) -> tuple[list[tuple[OsRow, Arch, Sequence[Place]]], dict[str, Unavailable]]:
    """The targets as their architecture sees them, with the places of their repositories; and the others."""
    located: list[tuple[OsRow, Arch, Sequence[Place]]] = []
    nowhere: dict[str, Unavailable] = {}
    for whole, arch in targets:
        row = whole.on(arch)
        try:
            located.append((row, arch, metadata_of(row).locate(row, arch, settings)))
        except Nowhere as error:
            nowhere[f"{row.id}-{arch}"] = error
    return located, nowhere


def _pinned(
    matrix: Matrix,
    row: OsRow,
    arch: Arch,
    repositories: Sequence[VerifiedRepository],
    downloads: Downloads,
) -> Pinned:
    """What repositories have for an OS and architecture, with what its headers say to the probes."""
    metadata = metadata_of(row)
    index = metadata.new_index()
    for repository in repositories:
        repository.add_packages(index, arch, downloads)
    drivers = [driver for driver in row.drivers if arch in driver_archs(matrix, row, driver)]
    kernels = metadata.find_kernels(index, row, arch)
    pinned = pin_target(
        index, row, arch, drivers, kernels=kernels, finished_modules=metadata.finished_modules
    )
    addresses = {one.id: one.address for one in repositories}
    facts = header_facts(
        pinned.target, probes_for(matrix, drivers), metadata.with_headers, addresses, downloads
    )
    target = replace(
        pinned.target, repositories=tuple(one.locked(arch) for one in repositories), header_facts=facts
    )
    return replace(pinned, target=target)


def _read_all(
    row: OsRow,
    places: Sequence[Place],
    read: dict[Place, VerifiedRepository],
    downloads: Downloads,
    settings: Settings,
) -> tuple[list[VerifiedRepository], dict[str, Nowhere]]:
    """The repositories at some places, and those of a subscription that do not let us in.

    `read` holds those that another architecture of the run needed.
    """
    entitled = {one.id for one in row.repositories if one.entitled}

    def attempt(place: Place) -> VerifiedRepository | TemporaryFailure | Nowhere:
        try:
            return place.read(downloads, settings)
        except TemporaryFailure as error:
            return error
        except Nowhere as error:
            if place.id not in entitled:
                raise
            return error

    new = [place for place in places if place not in read]
    failures: dict[str, TemporaryFailure] = {}
    refused: dict[str, Nowhere] = {}
    with ThreadPoolExecutor(WORKERS) as pool:
        for place, answer in zip(new, pool.map(attempt, new), strict=True):
            if isinstance(answer, TemporaryFailure):
                failures[place.id] = answer
            elif isinstance(answer, Nowhere):
                refused[place.id] = answer
            else:
                read[place] = answer
    if failures:
        raise degraded(failures)
    return [read[place] for place in places if place in read], refused


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
