"""What is told of a cell beside its verdict: warnings, which decide nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date

from driverforge_build.advice import Given
from driverforge_build.lock.pins import Lock, TargetLock
from driverforge_build.matrix.expand import Cell
from driverforge_build.matrix.fields import ModuleType
from driverforge_build.matrix.load import Matrix
from driverforge_build.nvidia.advisories import Advisories
from driverforge_build.render.requirements import base_of
from driverforge_build.verdict.verdicts import State, Verdict
from driverforge_core.driverversion import DriverVersion
from driverforge_core.kernel import realtime_flavour

UNPINNED_BASE = "the lock has no digest of the base image {}: nobody notices when it moves"
NO_FABRIC = (
    "built without the fabric manager and what else nodes with NVSwitches run: the lock has none of it"
)
NO_KERNELS = "the lock has no kernels of {}: a subscription is needed for {}"
FROM_SUBSCRIPTION = (
    "its build downloads from {}: run it on a registered host, or give what opens it there (--entitlement "
    "DIR), or a base that is configured with a copy (--base {}=REF)"
)
REALTIME = "a real-time kernel: NVIDIA does not support its driver there, and its build ignores that"
REALTIME_NODES = (
    "nodes that boot a real-time kernel need IGNORE_PREEMPT_RT_PRESENCE=1 in their environment to compile, "
    "and NVIDIA does not support its driver there"
)


class Remarks:
    """Warnings about the cells of one matrix and lock. What concerns many cells is found out once."""

    def __init__(
        self, matrix: Matrix, lock: Lock, *, today: date, given: Given, advisories: Advisories
    ) -> None:
        self._matrix = matrix
        self._advisories = advisories
        self._lock = lock
        self._month = f"{today:%Y-%m}"
        self._given = given
        self._branches: dict[str, str] = {}
        self._vulnerable: dict[str, str] = {}
        self._bases: dict[tuple[str, str, str], str] = {}
        self._fabrics: dict[tuple[str, str, str], str] = {}

    def about(self, cell: Cell, verdict: Verdict) -> tuple[str, ...]:
        """A sentence each."""
        return tuple(filter(None, self._about(cell, verdict)))

    def _about(self, cell: Cell, verdict: Verdict) -> Iterator[str]:
        yield from _without(verdict.left_out)
        yield self._end_of_life(cell.driver.branch)
        yield self._vulnerabilities(cell.driver.version)
        if verdict.state is State.BUILD:
            target = self._lock.target(cell.os.id, cell.arch)
            yield self._unpinned_base(cell, target)
            yield _no_kernels(cell, target)
            yield _subscribed(cell, target)
            yield self._without_fabric(cell, target)
            yield _realtime(cell)

    def _end_of_life(self, branch: str) -> str:
        if branch not in self._branches:
            row = self._matrix.branch(branch)
            told = (
                f"branch {branch} is past its end of life, {row.eol}"
                if row.eol and row.ended(self._month)
                else ""
            )
            self._branches[branch] = told
        return self._branches[branch]

    def _vulnerabilities(self, driver: str) -> str:
        if driver not in self._vulnerable:
            self._vulnerable[driver] = self._advisories.told(DriverVersion(driver))
        return self._vulnerable[driver]

    def _unpinned_base(self, cell: Cell, target: TargetLock | None) -> str:
        image = cell.driver.image_for(cell.os.id)
        if (key := (cell.os.id, cell.arch, image)) not in self._bases:
            base = base_of(cell, target, self._given.bases)
            self._bases[key] = "" if base.digest else UNPINNED_BASE.format(base.name)
        return self._bases[key]

    def _without_fabric(self, cell: Cell, target: TargetLock | None) -> str:
        if (key := (cell.os.id, cell.arch, cell.driver.version)) not in self._fabrics:
            roles = target.drivers.get(cell.driver.version, {}) if target else {}
            lacking = cell.os.fabric_of(cell.driver) is not None and not roles.get("fabric")
            self._fabrics[key] = NO_FABRIC if lacking else ""
        return self._fabrics[key]


def _no_kernels(cell: Cell, target: TargetLock | None) -> str:
    """Where the plan has JIT images alone because nobody let `lock` see a kernel."""
    if target is None or target.kernels or "precompiled" not in cell.driver.variants:
        return ""
    lacking = closed(cell, target, [one for series in cell.os.kernels for one in series.repositories])
    return NO_KERNELS.format(target.key, " and ".join(lacking)) if lacking else ""


def _subscribed(cell: Cell, target: TargetLock | None) -> str:
    """What a build needs that downloads from a subscription's repositories."""
    kernel = target.kernels.get(str(cell.kernel)) if target else None
    if target is None or kernel is None:
        return ""
    own = kernel.vendor.get(cell.driver.version, ()) if cell.driver.vendor_modules else kernel.headers
    suites = {package.suite for package in own}
    entitled = [one.id for one in cell.os.repositories if one.entitled and one.id in suites]
    return FROM_SUBSCRIPTION.format(" and ".join(entitled), cell.os.id) if entitled else ""


def _realtime(cell: Cell) -> str:
    """What a real-time kernel's images go without: of a JIT image where its OS offers such a kernel."""
    if cell.kernel is not None:
        return REALTIME if cell.kernel.realtime else ""
    offered = (flavour for series in cell.os.kernels for flavour in series.flavours.get(cell.arch, ()))
    return REALTIME_NODES if any(map(realtime_flavour, offered)) else ""


def closed(cell: Cell, target: TargetLock, concerned: Sequence[str] = ()) -> list[str]:
    """Repositories of a subscription that the lock was made without, of all or of those `concerned`."""
    found = cell.os.closed([one.suite for one in target.repositories])
    return [name for name in found if not concerned or name in concerned]


def _without(left_out: Mapping[ModuleType, str]) -> list[str]:
    """A warning for each reason to leave module types out."""
    reasons: dict[str, list[str]] = {}
    for kind, reason in left_out.items():
        reasons.setdefault(reason, []).append(kind)
    return [f"built without {listed(kinds)} modules: {reason}" for reason, kinds in reasons.items()]


def listed(kinds: Iterable[str]) -> str:
    return " and ".join(kinds)
