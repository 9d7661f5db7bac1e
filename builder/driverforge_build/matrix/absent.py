"""Why the matrix has no cell of an id: the row that would have to have it, and what that row has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from driverforge_build.matrix.expand import driver_archs, flavour_of
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.globs import glob_set
from driverforge_build.matrix.load import Matrix
from driverforge_build.matrix.model import DriverRow, OsRow
from driverforge_core.cell import CellId
from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease


def why_absent(matrix: Matrix, key: str) -> str:
    """A sentence about the id of a cell; '' where it is a glob, or the rows would have such a cell."""
    try:
        wanted = CellId.parse(key)
    except InputError:
        return ""
    row = matrix.row(wanted.os.key)
    if row is None:
        return f"no row of `systems` is {wanted.os.key}: it has {_listed(one.id for one in matrix.rows)}"
    arch = next((one for one in row.archs if one == wanted.arch), None)
    if arch is None:
        return f"the row of {row.id} is for {_listed(row.archs)}, not for {wanted.arch}"
    drivers = [one for one in row.drivers if arch in driver_archs(matrix, row, one)]
    mine = [one for one in drivers if one.version == wanted.driver.text]
    if not mine:
        return f"{row.id} has no row of driver {wanted.driver} for {arch}: it has {_versions(drivers)}"
    variant = "precompiled" if wanted.kernel else "jit"
    if not any(variant in one.variants for one in mine):
        return f"driver {wanted.driver} of {row.id} has no {variant} images: it has {_versions(mine)}"
    return _no_kernel(row, mine, arch, wanted.kernel) if wanted.kernel else ""


def _no_kernel(row: OsRow, drivers: Sequence[DriverRow], arch: Arch, kernel: KernelRelease) -> str:
    """Why a kernel is of no series, or of none that a driver is made for."""
    fitting = [one for one in row.kernels if glob_set((one.releases,))(kernel.text)]
    if not fitting:
        there = _listed(f"{one.id} ({one.releases})" for one in row.kernels)
        return f"no series of {row.id} has the kernel {kernel}: it has {there}"
    offered = [one for one in fitting if flavour_of(kernel) in one.flavours.get(arch, ())]
    if not offered:
        there = _listed(name for one in fitting for name in one.flavours.get(arch, ()))
        return f"{row.id} has no flavour {flavour_of(kernel)} for {arch}: it has {there or 'none'}"
    if not any(driver.takes(one.id) for driver in drivers for one in offered):
        taken = _listed(one.id for one in row.kernels for driver in drivers if driver.takes(one.id))
        others = _listed(one.id for one in offered)
        return f"driver {drivers[0].version} of {row.id} takes the series {taken or 'of none'}, not {others}"
    return ""


def _versions(drivers: Iterable[DriverRow]) -> str:
    return _listed(f"{one.version} ({' and '.join(one.variants)})" for one in drivers) or "none"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))
