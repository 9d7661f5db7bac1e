"""The judge: matrix and lock in, verdicts out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from driverforge_build.advice import Given
from driverforge_build.lock.pins import Lock, LockedKernel, TargetLock
from driverforge_build.matrix.branches import Probe
from driverforge_build.matrix.expand import Cell
from driverforge_build.matrix.fields import ModuleType
from driverforge_build.matrix.load import Matrix
from driverforge_build.matrix.probes import probe_rule, question
from driverforge_build.nvidia.advisories import NO_ADVISORIES, Advisories
from driverforge_build.render.requirements import (
    archive_of,
    jit_module_types,
    missing_pins,
    module_packages,
    source_versions,
    unpinned_image,
)
from driverforge_build.verdict.remarks import Remarks, closed, listed
from driverforge_build.verdict.verdicts import State, Verdict
from driverforge_core.driverversion import DriverVersion
from driverforge_core.headerprobe import ProbeRule


class Judge:
    """Verdicts for the cells of one matrix and lock.

    What the headers say to a driver is decided once for all flavours that share them.
    """

    def __init__(
        self,
        matrix: Matrix,
        lock: Lock,
        *,
        today: date,
        given: Given | None = None,
        advisories: Advisories = NO_ADVISORIES,
    ) -> None:
        self._matrix = matrix
        self._lock = lock
        self._given = given or Given()
        self._remarks = Remarks(matrix, lock, today=today, given=self._given, advisories=advisories)
        self._probes = [(row, probe_rule(row)) for row in matrix.probes]
        self._by_version: dict[tuple[object, ...], list[tuple[Probe, ProbeRule]]] = {}
        self._unpatched: dict[tuple[object, ...], list[ModuleType]] = {}
        self._by_headers: dict[tuple[object, ...], Verdict] = {}
        self._missing: dict[tuple[object, ...], tuple[str, ...]] = {}

    def verdict(self, cell: Cell) -> Verdict:
        """The verdict without a registry: never `exists`."""
        found = self._refused(cell) or self._not_pinned(cell) or self._pinned(cell)
        warnings = self._remarks.about(cell, found)
        return replace(found, warnings=warnings) if warnings else found

    def _pinned(self, cell: Cell) -> Verdict:
        found = self._of_kernel(cell)
        if found.state is not State.BUILD:
            return found
        return self._incomplete(found.narrowed(cell)) or found

    def _target(self, cell: Cell) -> TargetLock | None:
        return self._lock.target(cell.os.id, cell.arch)

    def _lock_again(self, cell: Cell) -> str:
        """The command that pins what a cell lacks."""
        return self._given.command("lock", select=(f"{cell.os.id}-{cell.arch}-*",))

    def _to_lock(self, cell: Cell, reason: str) -> Verdict:
        return Verdict(state=State.UNKNOWN, reason=reason, run=self._lock_again(cell))

    def _subscription(self, cell: Cell, lacking: Sequence[str]) -> Verdict:
        return Verdict(
            state=State.UNKNOWN,
            reason=f"a subscription is needed for {' and '.join(lacking)}, where this driver's packages are",
            run=f"{self._lock_again(cell)}   (says how a subscription is shown to it)",
        )

    def _not_looked_for(self, cell: Cell, unread: Sequence[str]) -> Verdict:
        names = " and ".join(unread)
        mirrors = " ".join(f"--mirror {cell.os.id}/{name}=ADDRESS" for name in unread)
        return Verdict(
            state=State.UNKNOWN,
            reason=f"a subscription is needed for {names}, where this driver's modules are",
            run=f"{self._lock_again(cell)}   (on a registered host whose .repo files name it, or with "
            f"{mirrors})",
        )

    def _refused(self, cell: Cell) -> Verdict | None:
        if cell.excluded is not None:
            row = cell.excluded
            return Verdict(
                state=State.BLOCKED,
                reason=row.reason,
                evidence=(
                    f"{self._matrix.origin('exclusions', row.id)}: exclusion {row.id}",
                    f"source: {row.source}",
                ),
            )
        return None

    def _not_pinned(self, cell: Cell) -> Verdict | None:
        """`unknown` where a pin is missing that a build needs."""
        target = self._target(cell)
        if target is None:
            return self._to_lock(cell, f"the lock holds nothing for {cell.os.id}-{cell.arch}")
        if cell.driver.version not in target.drivers:
            if lacking := closed(cell, target, cell.driver.repositories):
                return self._subscription(cell, lacking)
            return self._to_lock(cell, f"the lock does not pin driver {cell.driver.version}")
        if cell.kernel is not None and cell.kernel.text not in target.kernels:
            if cell.kernel.text in target.without_headers:
                return Verdict(
                    state=State.BLOCKED,
                    reason="the repositories still have this kernel's image, but not its headers",
                )
            return self._to_lock(cell, f"the lock does not know kernel {cell.kernel}")
        return self._archive_not_pinned(cell) or self._image_not_pinned(cell)

    def _archive_not_pinned(self, cell: Cell) -> Verdict | None:
        """`unknown` where the lock has no sha256 of NVIDIA's archive.

        It does not say whether `lock` has asked for one: a run for other drivers did not. So `lock` comes
        first, and says itself what somebody has to decide where none is published.
        """
        if cell.driver.payload != "runfile" or archive_of(cell, self._lock) is not None:
            return None
        command = self._given.command("lock", select=(f"{cell.os.id}-{cell.arch}-{cell.driver.version}-*",))
        return Verdict(
            state=State.UNKNOWN,
            reason=f"NVIDIA's archive {cell.driver.version} for {cell.arch} is not pinned",
            run=f"{command}   (asks NVIDIA for its sha256; where none is published, add --archive FILE, or "
            "--trust-first-use)",
        )

    def _image_not_pinned(self, cell: Cell) -> Verdict | None:
        """`unknown` where `lock` found no digest of the driver image of payload `image`."""
        image = unpinned_image(cell, self._target(cell))
        if not image:
            return None
        command = self._given.command("lock", select=(f"{cell.os.id}-{cell.arch}-{cell.driver.version}-*",))
        return Verdict(
            state=State.UNKNOWN,
            reason=f"the driver image {image} is not pinned: when `lock` ran, no registry had it with this "
            "driver",
            run=f"{command}   (asks its registry, and says what it answers)",
        )

    def _of_kernel(self, cell: Cell) -> Verdict:
        """What headers or packages say: `build` with what is left out, else what stands against it."""
        target = self._target(cell)
        if cell.kernel is None or target is None:
            return Verdict(state=State.BUILD, reason="compiles its modules on the node")
        kernel = target.kernels[cell.kernel.text]
        if cell.driver.vendor_modules:
            found = _vendor(cell, kernel)
            unread = _unread(cell, target) if found.state is State.BLOCKED else []
            return self._not_looked_for(cell, unread) if unread else found
        looked_into = (package.key for package in kernel.headers if package.key in target.header_facts)
        key = (target.key, cell.driver.version, cell.module_types, cell.kernel.version, *looked_into)
        if key not in self._by_headers:
            self._by_headers[key] = self._probed(cell, target, kernel)
        found = self._by_headers[key]
        if found.state is not State.BUILD:
            return found
        if not found.left_out:
            return Verdict(state=State.BUILD, reason=_headers_told(kernel))
        return replace(found, reason=f"{_headers_told(kernel)}{found.reason}")

    def _probed(self, cell: Cell, target: TargetLock, kernel: LockedKernel) -> Verdict:
        """The verdict of a kernel's headers on all module types of a cell.

        A type that one probe rules out is no other probe's business.
        """
        facts = target.facts(kernel)
        left_out: dict[ModuleType, str] = {}
        evidence: list[str] = []
        for row, rule in self._concerning(cell):
            kinds = [kind for kind in self._concerned(rule, cell, target) if kind not in left_out]
            if not kinds:
                continue
            asked = question(rule.probe)
            if asked not in facts:
                return self._to_lock(
                    cell, f"the lock has no answer to probe {row.id}, which is newer than the lock"
                )
            if facts[asked].breaks:
                left_out |= dict.fromkeys(kinds, row.reason)
                package = next(one for one in kernel.headers if one.key in target.header_facts)
                origin = self._matrix.origin("probes", row.id)
                evidence += [
                    f"{package.name} {package.version}: {facts[asked].found}",
                    f"{origin}: probe {row.id}, {', '.join(kinds)} modules of {cell.driver.branch}",
                    *row.evidence,
                ]
        if evidence and len(left_out) == len(cell.module_types):
            reason = "; ".join(dict.fromkeys(left_out.values()))
            return Verdict(state=State.BLOCKED, reason=reason, evidence=tuple(evidence))
        told = f"; without its {listed(left_out)} modules" if left_out else ""
        return Verdict(state=State.BUILD, reason=told, evidence=tuple(evidence), left_out=left_out)

    def _concerned(self, rule: ProbeRule, cell: Cell, target: TargetLock) -> list[ModuleType]:
        """`concerned`, once for all kernels of a target."""
        key = (rule.id, cell.driver.version, cell.module_types, cell.os.id, cell.arch)
        if key not in self._unpatched:
            self._unpatched[key] = concerned(rule, cell, target)
        return self._unpatched[key]

    def _concerning(self, cell: Cell) -> list[tuple[Probe, ProbeRule]]:
        """The probes that are about a cell: the same for all kernels of a version."""
        assert cell.kernel is not None
        key = (cell.driver.version, cell.module_types, cell.kernel.version)
        if key not in self._by_version:
            self._by_version[key] = [(row, rule) for row, rule in self._probes if concerns(rule, cell)]
        return self._by_version[key]

    def _incomplete(self, cell: Cell) -> Verdict | None:
        """`unknown` where the lock was made for a row that asked for less: `build` would refuse the cell."""
        target = self._target(cell)
        kernel = target.kernels[cell.kernel.text] if target and cell.kernel else None
        # flavours differ in their headers alone, and a kernel that has some lacks nothing else;
        # of a vendor's kernel all packages have been looked at
        headers = "" if kernel is None or kernel.headers else kernel.release
        key = (cell.os.id, cell.arch, cell.driver.version, jit_module_types(cell), headers)
        if key not in self._missing:
            self._missing[key] = tuple(missing_pins(cell, self._lock))
        if not self._missing[key]:
            return None
        return Verdict(
            state=State.UNKNOWN,
            reason="the lock lacks pins that this cell's row in the matrix asks for",
            evidence=self._missing[key],
            run=self._lock_again(cell),
        )


def _unread(cell: Cell, target: TargetLock) -> list[str]:
    """A subscription's repositories of a driver that the lock was made without, optional ones too."""
    entitled = {one.id for one in cell.os.repositories if one.entitled}
    return [name for name in cell.driver.repositories if name in entitled and target.suite(name) is None]


def concerned(rule: ProbeRule, cell: Cell, target: TargetLock) -> list[ModuleType]:
    """The module types of a cell that a probe is about, less those whose source its distribution patched."""
    driver, roles = DriverVersion(cell.driver.version), target.drivers.get(cell.driver.version, {})
    versions = source_versions(cell, [roles.get("source", ())])
    return [
        kind
        for kind in cell.module_types
        if kind in rule.module_types and not rule.patched(driver, versions.get(kind, ""))
    ]


def concerns(rule: ProbeRule, cell: Cell) -> bool:
    """Whether a probe is about a cell: its driver, one of its module types, its kernel's version."""
    return cell.kernel is not None and rule.concerns(
        DriverVersion(cell.driver.version), cell.module_types, cell.kernel
    )


def _headers_told(kernel: LockedKernel) -> str:
    named = next((package for package in kernel.headers if kernel.release in package.name), None)
    if headers := named or next(iter(kernel.headers), None):
        return f"headers {headers.version} of {headers.suite}, {kernel.compiler}"
    return kernel.compiler


def _vendor(cell: Cell, kernel: LockedKernel) -> Verdict:
    """`build` from the distribution's packages, with the module types that it ships for the kernel."""
    there = {package.name: package for package in kernel.vendor.get(cell.driver.version, ())}
    wanted = {kind: module_packages(cell, kind) for kind in cell.module_types}
    shipped = {kind: names for kind, names in wanted.items() if there.keys() >= set(names)}
    lacking = f"{cell.os.name} has no modules of {cell.driver.version} for this kernel (yet)"
    if not shipped:
        return Verdict(state=State.BLOCKED, reason=lacking)
    packages = tuple(
        f"{there[name].name} {there[name].version}"
        for name in dict.fromkeys(name for names in shipped.values() for name in names)
    )
    return Verdict(
        state=State.BUILD,
        reason=f"{cell.os.name} ships the modules: {', '.join(packages)}",
        packages=packages,
        left_out={kind: lacking for kind in wanted if kind not in shipped},
    )
