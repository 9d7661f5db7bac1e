"""The life of `driverforge watch`: what repositories and NVIDIA have that the lock does not know."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from driverforge_build.advice import Selection
from driverforge_build.discover.settings import Settings
from driverforge_build.discover.survey import Target, survey
from driverforge_build.discover.targets import asking_vendors, wanted_targets
from driverforge_build.lock.file import load_lock
from driverforge_build.lock.pins import Lock, TargetLock
from driverforge_build.matrix import Matrix, load_matrix
from driverforge_build.matrix.branches import Branch
from driverforge_build.matrix.select import check_named, mirror_os
from driverforge_build.nvidia.advisories import NO_ADVISORIES, Advisories, Vulnerability
from driverforge_build.nvidia.releases import OPEN_ONLY_FROM, RUNFILE_URL, Release, newest_releases
from driverforge_build.nvidia.site import MIRROR, RELEASES, Site, check_hosts
from driverforge_build.ports import Downloads, LastRead
from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import DriverforgeError, InputError, TemporaryFailure, Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetNews:
    """What changed for an OS and architecture: kernel releases, and kernels with finished modules.

    `modules` are pairs of kernel release and driver version, of kernels that the lock has without them.
    """

    kernels: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    modules: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.kernels or self.gone or self.modules)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverNews:
    """A release of a branch of the matrix.

    `known` is the newest version that matrix and lock name, '' where they have none yet.
    """

    release: Release
    known: str


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What is new since the lock, which is of the day `since`.

    `problems` are drivers that the lock pins and the repositories do not have so any more. `unanswered` is
    who did not answer, or has no address here, so that there may be more. `last_read` says of each target's
    repositories, by id, when they were read, `releases` of NVIDIA's list; None where there is no answer.
    """

    since: str
    targets: Mapping[str, TargetNews] = field(default_factory=dict)
    last_read: Mapping[str, Mapping[str, LastRead]] = field(default_factory=dict)
    releases: LastRead | None = None
    problems: Mapping[str, DriverforgeError] = field(default_factory=dict)
    drivers: tuple[DriverNews, ...] = ()
    branches: tuple[Release, ...] = ()
    ended: tuple[Branch, ...] = ()
    vulnerable: Mapping[str, tuple[Vulnerability, ...]] = field(default_factory=dict)
    rows: str = ""
    unanswered: tuple[DriverforgeError, ...] = ()

    @property
    def reads(self) -> list[LastRead]:
        """Of all that was read, NVIDIA's list too."""
        repositories = [one for target in self.last_read.values() for one in target.values()]
        return [*repositories, *((self.releases,) if self.releases else ())]

    def __bool__(self) -> bool:
        found = (*self.targets.values(), *self.problems, *self.drivers, *self.branches, *self.ended)
        return any((*found, *self.vulnerable))


def watch(
    selection: Selection, settings: Settings, downloads: Downloads, advisories: Advisories = NO_ADVISORIES
) -> News:
    """Look for what is newer than the lock, and what `advisories` say of its drivers.

    Nothing is written but the cache.
    Raises UsageError, Unsupported, InputError, and what `survey` raises for a repository that answers.
    """
    given = selection.given
    matrix = load_matrix(given.matrix)
    check_named("--mirror", map(mirror_os, settings.mirrors), [MIRROR, *(row.id for row in matrix.rows)])
    check_hosts(settings.mirrors)
    lock = load_lock(given.lock, matrix=given.matrix, select=selection.select, skip=selection.skip)
    watched = asking_vendors(
        matrix, _watched(selection, matrix, lock), lock, select=selection.select, skip=selection.skip
    )
    since = max(_days(lock.targets[f"{row.id}-{arch}"] for row, arch in watched), default="")
    news, unanswered = News(since=since), list[DriverforgeError]()
    try:
        news = _of_repositories(matrix, watched, lock, downloads, settings)
    except TemporaryFailure as error:
        unanswered.append(error)
    releases: dict[str, Release] = {}
    listed: LastRead | None = None
    try:
        document = Site(downloads=downloads, mirrors=settings.mirrors).dated_document(RELEASES)
        releases, listed = newest_releases(document.body), document.last_read
    # the page may have moved: that says nothing of kernels
    except Unavailable as error:
        unanswered.append(error)
    drivers = tuple(_newer(matrix, lock, releases))
    branches = tuple(_unknown_branches(matrix, releases))
    without = [*(one.release for one in drivers if not one.known), *branches]
    return replace(
        news,
        since=since,
        releases=listed,
        drivers=drivers,
        branches=branches,
        rows=rows_for(without, matrix, sorted({row.id for row, _ in watched})),
        ended=tuple(_ended(matrix, lock, since=since[:7], month=f"{settings.now:%Y-%m}")),
        vulnerable=_vulnerable([lock.targets[f"{row.id}-{arch}"] for row, arch in watched], advisories),
        unanswered=(*news.unanswered, *unanswered),
    )


def _watched(selection: Selection, matrix: Matrix, lock: Lock) -> list[Target]:
    """The selected targets that the lock holds. Raises InputError where that is none."""
    wanted = wanted_targets(matrix, select=selection.select, skip=selection.skip)
    if watched := [(row, arch) for row, arch in wanted if lock.target(row.id, arch)]:
        return watched
    raise InputError(
        f"{selection.given.lock} holds none of the selected systems",
        resolution=selection.given.command("lock", select=selection.select, skip=selection.skip),
    )


def _days(targets: Iterable[TargetLock]) -> Iterable[str]:
    return (repository.date for target in targets for repository in target.repositories)


def _of_repositories(
    matrix: Matrix, watched: Sequence[Target], lock: Lock, downloads: Downloads, settings: Settings
) -> News:
    """What changed in the repositories of the locked targets."""
    found = survey(matrix, watched, lock, downloads, replace(settings, accept_shrink=True, classes=False))
    keys = [f"{row.id}-{arch}" for row, arch in watched]
    pinned = {*keys, *(f"{key} {version}" for key in keys for version in lock.targets[key].drivers)}
    return News(
        since="",
        targets={
            key: target_news(lock.targets[key], after, older=found.kernels[key].left_out)
            for key, after in found.targets.items()
        },
        last_read=found.last_read,
        problems={what: error for what, error in found.problems.items() if what in pinned},
        unanswered=(*found.nowhere.values(), *found.degraded.values()),
    )


def target_news(before: TargetLock, after: TargetLock, *, older: Collection[str] = ()) -> TargetNews:
    """What a target has beside the lock. `older` kernels are published still: those are not gone."""
    return TargetNews(
        kernels=tuple(release for release in after.kernels if release not in before.kernels),
        gone=tuple(release for release in before.kernels if release not in {*after.kernels, *older}),
        modules=tuple(
            (release, version)
            for release, kernel in after.kernels.items()
            if release in before.kernels
            for version in kernel.vendor
            if version not in before.kernels[release].vendor
        ),
    )


def _newer(matrix: Matrix, lock: Lock, releases: Mapping[str, Release]) -> Iterable[DriverNews]:
    """Releases of the matrix's branches that are newer than all that it and the lock know."""
    pinned = {version for target in lock.targets.values() for version in target.drivers}
    for branch in matrix.branches:
        rows = {driver.version for row in matrix.rows for driver in row.drivers if driver.branch == branch.id}
        known = [
            DriverVersion(version)
            for version in (*filter(None, (branch.newest,)), *rows, *pinned)
            if version.partition(".")[0] == branch.id
        ]
        release = releases.get(branch.id)
        if release and all(release.version > version for version in known):
            yield DriverNews(release=release, known=max(known).text if known else "")


def rows_for(releases: Sequence[Release], matrix: Matrix, systems: Sequence[str]) -> str:
    """What a matrix has to say so that systems have drivers of branches that it has none of, as YAML.

    A branch that it does not know at all gets the row of its newest one, under its own number and kind: what
    differs besides, NVIDIA's page says.
    """
    newest = max(matrix.branches, key=lambda branch: int(branch.id))
    known = {branch.id for branch in matrix.branches}
    branches, drivers = [], []
    for release in releases:
        kinds = ["open"] if release.version.branch >= OPEN_ONLY_FROM else ["open", "proprietary"]
        own = {
            "id": release.branch,
            "designation": release.kind or "no kind published",
            "module_types": kinds,
        }
        if release.branch not in known:
            row = newest.model_dump(mode="json", exclude={"eol", "note"}, exclude_none=True)
            branches.append(f"  - {json.dumps({**row, **own, 'newest': release.version.text})}")
        driver: dict[str, Any] = {
            "id": release.branch,
            "branch": release.branch,
            "version": release.version.text,
        }
        driver |= {"payload": "runfile", "module_types": kinds, "url": RUNFILE_URL}
        drivers.append(f"      - {json.dumps(driver)}")
    if not drivers:
        return ""
    found = [line for one in systems for line in (f"  - id: {one}", "    drivers:", *drivers)]
    return "\n".join([*(["branches:", *branches] if branches else []), "systems:", *found])


def _unknown_branches(matrix: Matrix, releases: Mapping[str, Release]) -> Iterable[Release]:
    """Branches that are newer than the matrix; the list has old ones too."""
    newest = max(int(branch.id) for branch in matrix.branches)
    return (release for release in releases.values() if release.version.branch > newest)


def _vulnerable(
    targets: Iterable[TargetLock], advisories: Advisories
) -> dict[str, tuple[Vulnerability, ...]]:
    """Known vulnerabilities of each locked driver that has some."""
    versions = sorted({version for target in targets for version in target.drivers})
    found = {version: advisories.of(DriverVersion(version)) for version in versions}
    return {version: known for version, known in found.items() if known}


def _ended(matrix: Matrix, lock: Lock, *, since: str, month: str) -> Iterable[Branch]:
    """Branches of locked drivers whose end of life has come since the lock's month."""
    used = {version.partition(".")[0] for target in lock.targets.values() for version in target.drivers}
    return (
        branch
        for branch in matrix.branches
        if branch.id in used and branch.ended(month) and not branch.ended(since)
    )
