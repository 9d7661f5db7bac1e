"""What is to be done about a cell, decided before anything is downloaded or compiled, with the evidence.

Pure: matrix and lock in, verdict out; only `exists` needs a registry's answer, which is handed in.

    build         nothing stands against it
    exists        the registry has the image, made from the same inputs
    vendor-ships  the distribution publishes finished modules for this kernel
    blocked       the matrix excludes it, or the headers prove that the driver does not compile
    unknown       something has to be run first, `run` says what

End of life is a warning, never a verdict.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from datetime import date
from enum import Enum

from driverforge_build.advice import Given
from driverforge_build.lock.pins import HeaderFact, Lock, LockedKernel, TargetLock
from driverforge_build.matrix.expand import Cell
from driverforge_build.matrix.load import Matrix
from driverforge_build.matrix.nvidia import Probe
from driverforge_build.matrix.probes import probe_rule, question
from driverforge_build.render.needs import archive_of, jit_module_types, missing_pins
from driverforge_core.driver import DriverVersion
from driverforge_core.headerprobe import ProbeRule
from driverforge_oci.presence import Absent, Presence, Present


class State(Enum):
    BUILD = "build"
    EXISTS = "exists"
    VENDOR_SHIPS = "vendor-ships"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is to be done about a cell.

    `reason` is one sentence. `evidence` are lines, each with where it is from. `run` is a command for
    `unknown`, '' where none helps. `digest` is that of an existing image, `packages` are the vendor's,
    `warning` is about the branch's end of life. `unanswered`: the registry could not be asked, so that the
    same run may end differently later.
    """

    state: State
    reason: str
    evidence: tuple[str, ...] = ()
    run: str = ""
    digest: str = ""
    packages: tuple[str, ...] = ()
    warning: str = ""
    unanswered: bool = False


class Judge:
    """Verdicts for the cells of one matrix and lock.

    What the headers say to a driver is decided once for all flavours that share them.
    """

    def __init__(self, matrix: Matrix, lock: Lock, *, today: date, given: Given | None = None) -> None:
        self._matrix = matrix
        self._lock = lock
        self._month = f"{today:%Y-%m}"
        self._given = given or Given()
        self._probes = [(row, probe_rule(row)) for row in matrix.probes]
        self._by_headers: dict[tuple[object, ...], Verdict | None] = {}
        self._missing: dict[tuple[object, ...], tuple[str, ...]] = {}
        self._warnings: dict[str, str] = {}

    def verdict(self, cell: Cell) -> Verdict:
        """The verdict without a registry: never `exists`."""
        found = (
            self._refused(cell)
            or self._not_pinned(cell)
            or self._of_kernel(cell)
            or self._incomplete(cell)
            or self._build(cell)
        )
        warning = self._warning(cell.driver.branch)
        return replace(found, warning=warning) if warning else found

    def _target(self, cell: Cell) -> TargetLock | None:
        return self._lock.target(cell.os.id, cell.arch)

    def _lock_again(self, cell: Cell) -> str:
        """The command that pins what a cell lacks."""
        return self._given.command("lock", select=(f"{cell.os.id}-{cell.arch}-*",))

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
        if cell.driver.payload == "image":
            return Verdict(state=State.BLOCKED, reason="this version does not build payload `image`")
        return None

    def _not_pinned(self, cell: Cell) -> Verdict | None:
        """`unknown` where a pin is missing that a build needs."""
        target = self._target(cell)
        again = self._lock_again(cell)
        if target is None:
            return Verdict(
                state=State.UNKNOWN,
                reason=f"the lock holds nothing for {cell.os.id}-{cell.arch}",
                evidence=_subscription(cell),
                run=again,
            )
        if cell.driver.version not in target.drivers:
            return Verdict(
                state=State.UNKNOWN, reason=f"the lock does not pin driver {cell.driver.version}", run=again
            )
        if cell.kernel is not None and cell.kernel.text not in target.kernels:
            if cell.kernel.text in target.without_headers:
                return Verdict(
                    state=State.BLOCKED,
                    reason="the repositories still have this kernel's image, but not its headers",
                )
            return Verdict(
                state=State.UNKNOWN, reason=f"the lock does not know kernel {cell.kernel}", run=again
            )
        return self._archive_not_pinned(cell)

    def _archive_not_pinned(self, cell: Cell) -> Verdict | None:
        """`unknown` where `lock` found no sha256 of NVIDIA's archive: somebody has to decide."""
        if cell.driver.payload != "runfile" or archive_of(cell, self._lock) is not None:
            return None
        command = self._given.command("lock", select=(f"{cell.os.id}-{cell.arch}-{cell.driver.version}-*",))
        return Verdict(
            state=State.UNKNOWN,
            reason=f"NVIDIA's archive {cell.driver.version} for {cell.arch} is not pinned: no published "
            "sha256 of it was found",
            run=f"{command} --trust-first-use   (asks NVIDIA once more, then trusts what it downloads; "
            "--archive FILE in its place for a file that you have)",
        )

    def _of_kernel(self, cell: Cell) -> Verdict | None:
        target = self._target(cell)
        if cell.kernel is None or target is None:
            return None
        kernel = target.kernels[cell.kernel.text]
        if cell.driver.vendor_modules:
            return _vendor(cell, kernel)
        looked_into = (package.key for package in kernel.headers if package.key in target.header_facts)
        key = (target.key, cell.driver.version, cell.module_types, cell.kernel.version, *looked_into)
        if key not in self._by_headers:
            self._by_headers[key] = self._probed(cell, target, kernel)
        return self._by_headers[key]

    def _probed(self, cell: Cell, target: TargetLock, kernel: LockedKernel) -> Verdict | None:
        facts = target.facts(kernel)
        for row, rule in self._probes:
            if not concerns(rule, cell):
                continue
            asked = question(rule.probe)
            if asked not in facts:
                return Verdict(
                    state=State.UNKNOWN,
                    reason=f"the lock has no answer to probe {row.id}, which is newer than the lock",
                    run=self._lock_again(cell),
                )
            if facts[asked].breaks:
                return self._broken(cell, row, facts[asked], kernel, looked_into=target.header_facts)
        return None

    def _broken(
        self, cell: Cell, row: Probe, fact: HeaderFact, kernel: LockedKernel, *, looked_into: Container[str]
    ) -> Verdict:
        broken = [kind for kind in cell.module_types if kind in row.module_types]
        left = [kind for kind in cell.module_types if kind not in row.module_types]
        package = next(one for one in kernel.headers if one.key in looked_into)
        hints = []
        if left:
            others = ", ".join(left)
            hints.append(
                f"the {others} modules are not affected: exclude the {', '.join(broken)} ones in the matrix, "
                "and they are built"
            )
        origin = self._matrix.origin("probes", row.id)
        return Verdict(
            state=State.BLOCKED,
            reason=row.reason,
            evidence=(
                f"{package.name} {package.version}: {fact.found}",
                f"{origin}: probe {row.id}, {', '.join(broken)} modules of {cell.driver.branch}",
                *row.evidence,
                *hints,
            ),
        )

    def _incomplete(self, cell: Cell) -> Verdict | None:
        """`unknown` where the lock was made for a row that asked for less: `build` would refuse the cell."""
        target = self._target(cell)
        kernel = target.kernels[cell.kernel.text] if target and cell.kernel else None
        # flavours differ in their headers alone, and a kernel that has some lacks nothing else
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

    def _build(self, cell: Cell) -> Verdict:
        target = self._target(cell)
        if cell.kernel is None or target is None:
            return Verdict(state=State.BUILD, reason="compiles its modules on the node")
        kernel = target.kernels[cell.kernel.text]
        headers = next(
            (package for package in kernel.headers if kernel.release in package.name), kernel.headers[0]
        )
        return Verdict(
            state=State.BUILD, reason=f"headers {headers.version} of {headers.suite}, {kernel.compiler}"
        )

    def _warning(self, branch: str) -> str:
        if branch not in self._warnings:
            row = self._matrix.branch(branch)
            told = (
                f"branch {branch} is past its end of life, {row.eol}"
                if row.eol and row.ended(self._month)
                else ""
            )
            self._warnings[branch] = told
        return self._warnings[branch]


def with_presence(verdict: Verdict, answer: Presence, reference: str) -> Verdict:
    """A verdict `build`, after the registry was asked for the image made from the same inputs."""
    if isinstance(answer, Present):
        return replace(
            verdict,
            state=State.EXISTS,
            reason=f"{reference} was made from the same inputs",
            digest=answer.digest,
        )
    if isinstance(answer, Absent):
        return replace(verdict, evidence=(*verdict.evidence, f"{reference}: the registry does not have it"))
    return replace(
        verdict,
        state=State.UNKNOWN,
        reason=f"the registry does not say whether it has the image: {answer.reason}",
        run=answer.resolution
        or "log in to the registry if it asks for that, then run the same command again",
        unanswered=True,
    )


def _subscription(cell: Cell) -> tuple[str, ...]:
    """What `lock` needs to read the repositories of an OS that are open to subscribers alone."""
    closed = [one.id for one in cell.os.repositories if one.entitled and one.role != "extra"]
    needed = (
        f"a subscription is needed for {' and '.join(closed)}: run `lock` on a registered host, or with "
        "--entitlement DIR, the /etc/pki/entitlement of one"
    )
    return (needed,) if closed else ()


def concerns(rule: ProbeRule, cell: Cell) -> bool:
    """Whether a probe is about a cell: its driver, one of its module types, its kernel's version."""
    return cell.kernel is not None and rule.concerns(
        DriverVersion(cell.driver.version), cell.module_types, cell.kernel
    )


def _vendor(cell: Cell, kernel: LockedKernel) -> Verdict:
    packages = kernel.vendor.get(cell.driver.version, ())
    if not packages:
        return Verdict(
            state=State.BLOCKED,
            reason=f"{cell.os.name} has no modules of {cell.driver.version} for this kernel (yet)",
        )
    names = tuple(f"{package.name} {package.version}" for package in packages)
    return Verdict(
        state=State.VENDOR_SHIPS,
        reason=f"{cell.os.name} ships the modules: {', '.join(names)}",
        packages=names,
    )
