"""From rows to cells. A cell is one image to be, and its id is what `--select` matches.

    debian12-amd64-535.261.03-jit
    debian12-amd64-535.261.03-6.1.0-50-cloud-amd64

Both functions are generators over plain loops: a hundred thousand kernels are planned in well under a second
a step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from driverforge_build.matrix.branches import Exclusion
from driverforge_build.matrix.fields import Arch, ModuleType
from driverforge_build.matrix.globs import Predicate, expand_braces, glob_set
from driverforge_build.matrix.model import DriverRow, KernelSeries, OsRow
from driverforge_core.cell import JIT, CellId
from driverforge_core.driverversion import DriverVersion
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsId

if TYPE_CHECKING:
    from driverforge_build.matrix.load import Matrix

# major and minor number at the start of a glob over releases, as far as no wildcard could go on with them
_NUMBERS = re.compile(r"(\d+)(?:\.(\d+))?(?=[.+-]|$)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One image to be, with every module type of its row, as NVIDIA's images have them.

    `excluded` is the exclusion of the matrix that concerns all of its module types; such a cell is never
    built. `kernel` and `series` (the row that it belongs to) are None for a JIT cell. `dropped` are
    exclusions that took some module types away.
    """

    key: str
    os: OsRow
    driver: DriverRow
    arch: Arch
    kernel: KernelRelease | None = None
    series: KernelSeries | None = None
    module_types: tuple[ModuleType, ...] = ()
    excluded: Exclusion | None = None
    dropped: tuple[Exclusion, ...] = field(default=())

    @property
    def id(self) -> CellId:
        """The parsed form of `key`."""
        return CellId(
            os=OsId.parse(self.os.id),
            arch=self.arch,
            driver=DriverVersion(self.driver.version),
            kernel=self.kernel,
        )

    @property
    def compiled(self) -> bool:
        """Whether the build compiles modules. JIT images have none, and a vendor's are finished."""
        return self.kernel is not None and not self.driver.vendor_modules

    def __str__(self) -> str:
        return self.key


@dataclass(frozen=True, slots=True)
class _Rule:
    """An exclusion that holds for an OS, architecture and driver, its kernel conditions compiled."""

    row: Exclusion
    flavours: Predicate | None
    kernels: Predicate | None

    def concerns(self, kernel: KernelRelease | None) -> bool:
        if kernel is None:
            return self.flavours is None and self.kernels is None
        if self.flavours is not None and not self.flavours(flavour_of(kernel)):
            return False
        return self.kernels is None or self.kernels(kernel.text)


def flavour_of(kernel: KernelRelease) -> str:
    """The flavour as matrix.yaml names it.

    Such as 'cloud-amd64', 'generic', 'azure-fde'; RHEL's are 'default', '64k', 'rt'.
    """
    return kernel.flavour or kernel.variant or "default"


def jit_cells(matrix: Matrix, *, excluded: bool = False) -> tuple[Cell, ...]:
    """A cell for each OS, architecture and driver that is made as a JIT image.

    `excluded` adds the cells that are not to be built.
    """
    return tuple(
        cell
        for row, driver, arch in _combinations(matrix)
        if "jit" in driver.variants
        for cell in (_cell(row, driver, arch, _rules(matrix, row, driver, arch)),)
        if excluded or cell.excluded is None
    )


def kernel_cells(
    matrix: Matrix, kernels: Mapping[tuple[str, str], Iterable[KernelRelease]], *, excluded: bool = False
) -> Iterator[Cell]:
    """A cell for each kernel that a driver's row takes.

    `kernels` maps (OS id, architecture) to what discovery found. A kernel of a series or flavour that the row
    does not name gives no cell, unless exclusions that name its flavour leave no module type, it has the
    version of a series, and `excluded` is set: then there is a cell that says why not. The release of a
    flavour that no series offers need not fit the series' glob, which is made for those that are offered:
    Ubuntu's 6.8.1-1015-realtime is beside 6.8.0-*.
    """
    for row, driver, arch in _combinations(matrix):
        if "precompiled" not in driver.variants:
            continue
        rules = _rules(matrix, row, driver, arch)
        all_series = _series(row, driver, arch)
        versions = {numbers for series, _, _ in all_series for numbers in _versions(series)}
        offered = {flavour for _, _, flavours in all_series for flavour in flavours}
        # an exclusion that names no flavour says nothing about those that are not offered
        refusing = tuple(rule for rule in rules if rule.flavours is not None)
        prefix = f"{row.id}-{arch}-{driver.version}-"
        for kernel in kernels.get((row.id, arch), ()):
            series = next(
                (
                    series
                    for series, releases, flavours in all_series
                    if releases(kernel.text) and flavour_of(kernel) in flavours
                ),
                None,
            )
            if series is not None:
                cell = _cell(row, driver, arch, rules, kernel=kernel, series=series, key=prefix + kernel.text)
                if excluded or cell.excluded is None:
                    yield cell
            elif excluded and (
                any(kernel.version[: len(numbers)] == numbers for numbers in versions)
                if flavour_of(kernel) not in offered
                else any(releases(kernel.text) for _, releases, _ in all_series)
            ):
                cell = _cell(row, driver, arch, refusing, kernel=kernel, key=prefix + kernel.text)
                if cell.excluded is not None:
                    yield cell


def driver_archs(matrix: Matrix, row: OsRow, driver: DriverRow) -> tuple[Arch, ...]:
    """Architectures that a driver's images are made for on an OS."""
    supported = matrix.branch(driver.branch).archs
    return tuple(
        arch for arch in row.archs if arch in supported and (driver.archs is None or arch in driver.archs)
    )


def _combinations(matrix: Matrix) -> Iterator[tuple[OsRow, DriverRow, Arch]]:
    for row in matrix.rows:
        seen = {arch: row.on(arch) for arch in row.archs}
        for number, driver in enumerate(row.drivers):
            for arch in driver_archs(matrix, row, driver):
                yield seen[arch], seen[arch].drivers[number], arch


def _series(
    row: OsRow, driver: DriverRow, arch: Arch
) -> list[tuple[KernelSeries, Predicate, frozenset[str]]]:
    all_series = [series for series in row.kernels if driver.takes(series.id)]
    return [
        (series, glob_set((series.releases,)), frozenset(series.flavours.get(arch, ())))
        for series in all_series
    ]


def _versions(series: KernelSeries) -> Iterator[tuple[int, ...]]:
    """Major and minor numbers of a series, as far as its globs say them: (6, 8), (7,)."""
    for glob in expand_braces(series.releases):
        found = _NUMBERS.match(glob)
        yield tuple(int(number) for number in found.groups() if number) if found else ()


def _rules(matrix: Matrix, row: OsRow, driver: DriverRow, arch: Arch) -> tuple[_Rule, ...]:
    return tuple(
        _Rule(
            exclusion,
            glob_set(exclusion.flavours) if exclusion.flavours else None,
            glob_set(exclusion.kernels) if exclusion.kernels else None,
        )
        for exclusion in matrix.exclusions
        if arch in exclusion.archs
        and glob_set(exclusion.systems)(row.id)
        and glob_set(exclusion.branches)(driver.branch)
    )


def _cell(
    row: OsRow,
    driver: DriverRow,
    arch: Arch,
    rules: tuple[_Rule, ...],
    *,
    kernel: KernelRelease | None = None,
    series: KernelSeries | None = None,
    key: str = "",
) -> Cell:
    dropped = tuple(rule.row for rule in rules if rule.concerns(kernel)) if rules else ()
    gone = {kind for exclusion in dropped for kind in exclusion.module_types}
    left = tuple(kind for kind in driver.module_types if kind not in gone)
    return Cell(
        key=key or f"{row.id}-{arch}-{driver.version}-{JIT}",
        os=row,
        driver=driver,
        arch=arch,
        kernel=kernel,
        series=series,
        module_types=left,
        excluded=None if left else dropped[0],
        dropped=tuple(
            exclusion for exclusion in dropped if set(exclusion.module_types) & set(driver.module_types)
        ),
    )
