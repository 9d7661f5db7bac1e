"""One run of discovery: repositories of each OS, then pins of each target, then answers of header probes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from driverforge_build.discover.answers import header_answers, probes_for
from driverforge_build.discover.entitlement import left_out, needs, without_vendors
from driverforge_build.discover.kernels import Kernels, newest_alone
from driverforge_build.discover.manager import Place, VerifiedRepository, metadata_of
from driverforge_build.discover.pin import OtherVersion, Pinned, pin_target
from driverforge_build.discover.settings import Nowhere, Settings
from driverforge_build.discover.signature import Untrusted
from driverforge_build.discover.sums import pins_of
from driverforge_build.lock.compare import check_losses
from driverforge_build.lock.pins import Lock, TargetLock
from driverforge_build.matrix.expand import driver_archs
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.load import Matrix
from driverforge_build.matrix.model import DriverRow, OsRow
from driverforge_build.ports import Downloads, LastRead, NotThere
from driverforge_core.errors import DriverforgeError, InputError, TemporaryFailure, Unavailable

WORKERS = 4
log = logging.getLogger(__name__)

Target = tuple[OsRow, Arch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a run found: the targets that were read, by key, and what became of the others.

    `problems` maps what could not be pinned, a driver ('debian12-amd64 535.261.03') or a whole target, to the
    reason. `nowhere` does that for targets ('rhel9-amd64') whose repositories nobody named or opened,
    `degraded` for those whose repositories cannot be read now, or are not signed by anybody trusted. `closed`
    are targets that were read without the repositories of a subscription, `partial` those read without a
    vendor's, with what they lack. `unfit` are drivers, as in `problems`, that a vendor has other versions
    for. `kernels` are those of each target's repositories. `last_read` says of these, by id, when they were
    read.
    """

    targets: Mapping[str, TargetLock]
    last_read: Mapping[str, Mapping[str, LastRead]]
    kernels: Mapping[str, Kernels]
    problems: Mapping[str, DriverforgeError]
    nowhere: Mapping[str, Unavailable]
    degraded: Mapping[str, DriverforgeError]
    closed: Mapping[str, Nowhere]
    partial: Mapping[str, DriverforgeError]
    unfit: Mapping[str, DriverforgeError]


def survey(
    matrix: Matrix, targets: Sequence[Target], earlier: Lock, downloads: Downloads, settings: Settings
) -> Survey:
    """Discover targets. `earlier` is what the shrink guard compares them with.

    A target whose repositories cannot be read now, or at all, or that nobody trusted has signed, that shrank
    suspiciously, or of which nothing says where its repositories are, is left out. Where all are, the first
    one's error is raised. Raises Unavailable, InputError.
    """
    found: dict[str, TargetLock] = {}
    times: dict[str, Mapping[str, LastRead]] = {}
    kernels: dict[str, Kernels] = {}
    problems: dict[str, DriverforgeError] = {}
    read: dict[Place, VerifiedRepository] = {}
    located, nowhere = _located(targets, settings)
    failed: dict[str, DriverforgeError] = {}
    closed: dict[str, Nowhere] = {}
    partial: dict[str, DriverforgeError] = {}
    unfit: dict[str, DriverforgeError] = {}
    for row, arch, places in located:
        key = f"{row.id}-{arch}"
        known = earlier.target(row.id, arch)
        try:
            answers = _read_all(row, places, read, downloads, settings)
            shut = row.closed([one.id for one in answers.repositories])
            if shut and (not answers.repositories or (known and any(map(known.suite, shut)))):
                raise left_out(row, arch, shut, answers.refused, {})
            classes = (
                settings.classes if settings.classes is not None else bool(known and known.header_digests)
            )
            pinned = _pinned(matrix, row, arch, answers, downloads, classes=classes)
            if known and any(map(known.suite, answers.unread)):
                raise degraded(answers.unread)
            if not settings.accept_shrink:
                check_losses(known, pinned.target, older=pinned.kernels.left_out)
        except Nowhere as error:
            nowhere[key] = error
            continue
        except (NotThere, InputError) as error:
            problems[key] = error
            continue
        except (TemporaryFailure, Untrusted) as error:
            failed[key] = error
            continue
        lacking = _lacking(row, pinned, known, {*shut, *answers.unread})
        if shut:
            closed[key] = left_out(row, arch, shut, answers.refused, lacking.drivers)
        if answers.unread or lacking.fabric:
            partial[key] = without_vendors(row, arch, answers.unread, lacking.drivers, lacking.fabric)
        for driver in row.drivers:
            name = f"{key} {driver.version}"
            if driver.version in pinned.problems.keys() - lacking.drivers.keys():
                problems[name] = _at_row(matrix, row, driver, pinned.problems[driver.version])
            if driver.version in lacking.unfit:
                unfit[name] = _at_row(matrix, row, driver, lacking.unfit[driver.version])
        found[key], kernels[key] = pinned.target, pinned.kernels
        times[key] = {one.id: one.last_read for one in answers.repositories if one.id not in answers.unread}
        log.info(
            "target=%s kernels=%d drivers=%d", key, len(pinned.target.kernels), len(pinned.target.drivers)
        )
    if not found and (errors := [*failed.values(), *problems.values(), *nowhere.values()]):
        raise errors[0]
    return Survey(
        targets=found,
        last_read=times,
        kernels=kernels,
        problems=problems,
        nowhere=nowhere,
        degraded=failed,
        closed=closed,
        partial=partial,
        unfit=unfit,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lacking:
    """What cannot be pinned for want of repositories, by driver version: `drivers`, and `fabric` of others.

    `unfit` is what keeps drivers from their fabric's packages though these are there.
    """

    drivers: Mapping[str, DriverforgeError]
    fabric: Mapping[str, DriverforgeError]
    unfit: Mapping[str, DriverforgeError]


def _lacking(row: OsRow, pinned: Pinned, known: TargetLock | None, unread: Collection[str]) -> _Lacking:
    """`unread` are the repositories that were left out."""
    before = known.drivers if known else {}
    excused = {
        version for version, error in pinned.unfit.items() if unread and not isinstance(error, OtherVersion)
    }
    return _Lacking(
        drivers={
            driver.version: pinned.problems[driver.version]
            for driver in row.drivers
            if driver.version in pinned.problems.keys() - before.keys() and needs(driver, unread)
        },
        fabric={version: error for version, error in pinned.unfit.items() if version in excused},
        unfit={version: error for version, error in pinned.unfit.items() if version not in excused},
    )


def _at_row(matrix: Matrix, row: OsRow, driver: DriverRow, error: DriverforgeError) -> DriverforgeError:
    """An error about a driver's packages, with the place of its row."""
    place = f"{matrix.origin('systems', f'{row.id}/{driver.id}')}: driver {driver.id} of {row.id}"
    return type(error)(error.brief, details=(place, *error.details), resolution=error.resolution)


def closed_targets(targets: Sequence[Target], settings: Settings) -> dict[str, Nowhere]:
    """Targets that lack a subscription's repositories, as far as that is known before anything is asked."""
    lacking = [
        (row, arch, row.closed([place.id for place in places]))
        for row, arch, places in _located(targets, settings)[0]
    ]
    return {f"{row.id}-{arch}": left_out(row, arch, shut, {}, {}) for row, arch, shut in lacking if shut}


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
    matrix: Matrix, row: OsRow, arch: Arch, answers: _Answers, downloads: Downloads, *, classes: bool
) -> Pinned:
    """What repositories have for an OS and architecture, with what its headers say to the probes.

    A vendor's whose index cannot be had becomes one of the `answers.unread`.
    """
    metadata = metadata_of(row)
    index = metadata.new_index()
    vendors = row.vendors

    def add(repository: VerifiedRepository) -> bool:
        try:
            repository.add_packages(index, arch, downloads)
        except (TemporaryFailure, Unavailable) as error:
            if repository.id not in vendors:
                raise
            answers.unread[repository.id] = error
        return repository.id not in answers.unread

    repositories = [repository for repository in answers.repositories if add(repository)]
    drivers = [driver for driver in row.drivers if arch in driver_archs(matrix, row, driver)]
    kernels = newest_alone(metadata.find_kernels(index, row, arch))
    addresses = {one.id: one.address for one in repositories}
    pinned = pin_target(
        index,
        row,
        arch,
        drivers,
        kernels=kernels,
        finished_modules=metadata.finished_modules,
        pins_of=partial(pins_of, addresses, downloads),
    )
    said = header_answers(
        pinned.target,
        probes_for(matrix, drivers),
        metadata.with_headers,
        addresses,
        downloads,
        digests=classes,
    )
    target = replace(
        pinned.target,
        repositories=tuple(one.locked(arch, downloads) for one in repositories),
        header_facts=said.facts,
        header_digests=said.digests,
    )
    return replace(pinned, target=target)


@dataclass(slots=True, kw_only=True)
class _Answers:
    """What became of a target's repositories: `refused` are a subscription's that do not let us in, `unread`
    vendors' that cannot be read, without which a system is whole.
    """

    repositories: list[VerifiedRepository] = field(default_factory=list)
    refused: dict[str, Nowhere] = field(default_factory=dict)
    unread: dict[str, DriverforgeError] = field(default_factory=dict)


def _read_all(
    row: OsRow,
    places: Sequence[Place],
    read: dict[Place, VerifiedRepository],
    downloads: Downloads,
    settings: Settings,
) -> _Answers:
    """The repositories at some places. `read` holds those that another architecture of the run needed."""
    entitled = {one.id for one in row.repositories if one.entitled}
    vendors = row.vendors

    def attempt(place: Place) -> VerifiedRepository | TemporaryFailure | Unavailable:
        try:
            return place.read(downloads, settings)
        except TemporaryFailure as error:
            return error
        except Unavailable as error:
            if place.id in vendors or (place.id in entitled and isinstance(error, Nowhere)):
                return error
            raise

    new = [place for place in places if place not in read]
    failures: dict[str, DriverforgeError] = {}
    answers = _Answers()
    with ThreadPoolExecutor(WORKERS) as pool:
        for place, answer in zip(new, pool.map(attempt, new), strict=True):
            if not isinstance(answer, DriverforgeError):
                read[place] = answer
            elif place.id in vendors:
                answers.unread[place.id] = answer
            elif isinstance(answer, Nowhere):
                answers.refused[place.id] = answer
            else:
                failures[place.id] = answer
    if failures:
        raise degraded(failures)
    answers.repositories += [read[place] for place in places if place in read]
    return answers


def degraded(failures: Mapping[str, DriverforgeError]) -> TemporaryFailure:
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
