"""Everything that is known about one cell, for a person who asks why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from driverforge_build.lock.pins import Lock, LockedPackage, TargetLock
from driverforge_build.matrix.absent import why_absent
from driverforge_build.matrix.expand import Cell, kernel_cells
from driverforge_build.matrix.load import Matrix
from driverforge_build.matrix.probes import probe_rule, question
from driverforge_build.matrix.select import NO_ROW, near_ids
from driverforge_build.nvidia.archives import told_by
from driverforge_build.plan.classes import evidence_lines
from driverforge_build.plan.rows import all_cells
from driverforge_build.render.requirements import archive_of, base_of, locked_base_of
from driverforge_build.verdict.decide import concerned, concerns
from driverforge_build.verdict.remarks import UNPINNED_BASE
from driverforge_build.verdict.verdicts import Source, Verdict, source_of
from driverforge_core.cell import CellId
from driverforge_core.errors import InputError, UsageError

_SOURCES = {
    Source.VENDOR: "finished, from the distribution's packages",
    Source.COMPILE: "compiled with the image",
    Source.NODE: "compiled on the node",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A heading and its lines."""

    title: str
    lines: tuple[str, ...]


def find_cell(matrix: Matrix, lock: Lock, key: str) -> Cell:
    """The cell of an id.

    Also one for a kernel whose headers are gone or whose flavour is excluded, and any cell where the lock
    does not have the OS yet. Raises UsageError with near ids where the matrix has none, InputError where the
    lock of its OS does not have the kernel.
    """
    keys = []
    for cell in all_cells(matrix, lock):
        if cell.key == key:
            return cell
        keys.append(cell.key)
    try:
        wanted = CellId.parse(key)
    except InputError as error:
        raise UsageError(error.brief, details=_near(key, keys), resolution=error.resolution) from None
    if wanted.kernel is not None:
        for cell in kernel_cells(matrix, {(wanted.os.key, wanted.arch): [wanted.kernel]}, excluded=True):
            if cell.key == key:
                _check_known(cell, wanted.kernel.text, lock.target(cell.os.id, cell.arch))
                return cell
    why = why_absent(matrix, key)
    raise UsageError(
        f"the matrix has no cell {key}",
        details=[*filter(None, [why]), *_near(key, keys)],
        resolution=NO_ROW if why else "write the id as `driverforge plan` prints it",
    )


def _near(key: str, keys: Sequence[str]) -> list[str]:
    return [f"near: {near}" for near in near_ids(key, keys)]


def _check_known(cell: Cell, kernel: str, target: TargetLock | None) -> None:
    series = cell.series
    # no lock has a kernel whose flavour the row of its OS has not
    if target is None or series is None:
        return
    if kernel not in target.kernels and kernel not in target.without_headers:
        older = (
            f"`newest: {series.newest}` of series {series.id} leaves older kernels out; "
            if series.newest
            else ""
        )
        raise InputError(
            f"the lock has no kernel {kernel} for {target.key}",
            details=_near(kernel, tuple(target.kernels)),
            resolution=f"{older}`driverforge lock` finds kernels that are newer than the lock; else explain "
            "one of the kernels above",
        )


def paragraphs(
    cell: Cell, verdict: Verdict, matrix: Matrix, lock: Lock, bases: Mapping[str, str]
) -> Iterator[Paragraph]:
    """The evidence behind a verdict, in the order in which a person asks for it."""
    warnings = tuple(f"warning: {warning}" for warning in verdict.warnings)
    modules = f"modules: {', '.join(verdict.narrowed(cell).module_types)}, {_SOURCES[source_of(cell)]}"
    run = (f"to run: {verdict.run}",) if verdict.run else ()
    digest = (f"digest: {verdict.digest}",) if verdict.digest else ()
    yield Paragraph(
        title=f"{cell.key}: {verdict.state}",
        lines=(verdict.reason, *digest, modules, *verdict.evidence, *run, *warnings),
    )
    yield Paragraph(title="matrix", lines=tuple(_matrix_lines(cell, matrix)))
    target = lock.target(cell.os.id, cell.arch)
    if target is None:
        return
    if cell.kernel is not None:
        yield Paragraph(title="kernel", lines=tuple(_kernel_lines(cell, target)))
        yield Paragraph(
            title="probes", lines=tuple(_probe_lines(cell, target, matrix)) or ("none concerns this cell",)
        )
    yield Paragraph(title="base image", lines=tuple(_base_lines(cell, target, bases)))
    yield Paragraph(title="driver", lines=(*_driver_lines(cell, target), *_archive_lines(cell, lock)))
    yield Paragraph(title="repositories", lines=tuple(_repository_lines(target)))


def document(
    cell: Cell, verdict: Verdict, matrix: Matrix, lock: Lock, bases: Mapping[str, str]
) -> dict[str, Any]:
    """The same as one JSON document."""
    return {
        "schema": 1,
        "cell": cell.key,
        "source": source_of(cell).value,
        "module_types": list(verdict.narrowed(cell).module_types),
        "verdict": {**asdict(verdict), "state": verdict.state.value},
        "sections": [asdict(paragraph) for paragraph in paragraphs(cell, verdict, matrix, lock, bases)],
    }


def _matrix_lines(cell: Cell, matrix: Matrix) -> Iterator[str]:
    branch = matrix.branch(cell.driver.branch)
    system, driver = (
        matrix.origin("systems", cell.os.id),
        matrix.origin("systems", f"{cell.os.id}/{cell.driver.id}"),
    )
    yield f"{system}: {cell.os.name}"
    yield (
        f"{driver or system}: driver {cell.driver.version}, payload {cell.driver.payload}, modules "
        f"{', '.join(cell.driver.module_types)}"
    )
    eol = f"end of life {branch.eol}" if branch.eol else "no end of life is known"
    yield f"{matrix.origin('branches', branch.id)}: branch {branch.id}, {branch.designation}, {eol}"
    for exclusion in cell.dropped:
        gone = ", ".join(exclusion.module_types)
        yield (
            f"{matrix.origin('exclusions', exclusion.id)}: exclusion {exclusion.id} takes {gone} modules "
            f"away: {exclusion.reason}"
        )


def _kernel_lines(cell: Cell, target: TargetLock) -> Iterator[str]:
    text = cell.kernel.text if cell.kernel else ""
    kernel = target.kernels.get(text)
    if kernel is None:
        gone = text in target.without_headers
        yield (
            "its image is still published, its headers are not"
            if gone
            else "the lock does not know this kernel"
        )
        return
    yield f"flavour {kernel.flavour or 'default'}, compiler {kernel.compiler}"
    yield from evidence_lines(kernel, target)
    for package in kernel.packages:
        yield from _package_lines(package)


def _probe_lines(cell: Cell, target: TargetLock, matrix: Matrix) -> Iterator[str]:
    kernel = target.kernels.get(cell.kernel.text if cell.kernel else "")
    facts = target.facts(kernel) if kernel else {}
    words = {True: "breaks the build", False: "fine", None: "cannot say"}
    for row in matrix.probes:
        rule = probe_rule(row)
        asked = question(rule.probe)
        if concerns(rule, cell):
            answer = (
                f"{words[facts[asked].breaks]}: {facts[asked].found}" if asked in facts else "not in the lock"
            )
            if not (kinds := concerned(rule, cell, target)):
                answer = "the package with the source has a patch for it"
            yield f"{row.id} ({', '.join(kinds or row.module_types)}): {answer}"


def _base_lines(cell: Cell, target: TargetLock, bases: Mapping[str, str]) -> Iterator[str]:
    base = base_of(cell, target, bases)
    holds = ", which the driver comes from" if cell.driver.payload == "image" else ""
    yield f"{base}{holds}" if base.digest else UNPINNED_BASE.format(base.name)
    if (locked := locked_base_of(cell, target)) is None:
        return
    if locked.reference == base.name and locked.digest == base.digest:
        yield f"  as the lock has it; the index over all architectures is {locked.index}"
    else:
        yield f"  the lock has {locked.reference}@{locked.digest}"


def _driver_lines(cell: Cell, target: TargetLock) -> Iterator[str]:
    roles = target.drivers.get(cell.driver.version)
    if roles is None:
        yield f"the lock does not pin {cell.driver.version}"
        return
    for role, packages in sorted(roles.items()):
        size = sum(package.size for package in packages)
        yield f"{role}: {len(packages)} packages, {size / 1e6:.1f} MB"
        if role in ("firmware", "source"):
            for package in packages:
                yield from _package_lines(package)


def _archive_lines(cell: Cell, lock: Lock) -> Iterator[str]:
    archive = archive_of(cell, lock) if cell.driver.payload == "runfile" else None
    if archive is None:
        return
    pin = lock.archive(cell.driver.version, cell.arch)
    own = cell.arch in cell.driver.sha256
    yield f"archive: {archive.url}"
    yield f"  sha256 {archive.sha256}, {told_by(pin) if pin and not own else 'as the matrix says'}"


def _repository_lines(target: TargetLock) -> Iterator[str]:
    for repository in target.repositories:
        until = f", valid until {repository.valid_until}" if repository.valid_until else ""
        # an index that has components is apt's
        document = "InRelease" if repository.components else "repomd.xml"
        yield f"{repository.suite} of {repository.date}{until}; {document} sha256 {repository.inrelease}"
        yield f"  {repository.signers()}"


def _package_lines(package: LockedPackage) -> Iterator[str]:
    yield (
        f"{package.name} {package.version} {package.arch}, {package.size / 1e6:.1f} MB, from {package.suite}"
    )
    yield f"  {package.path}"
    yield f"  sha256 {package.sha256}"
