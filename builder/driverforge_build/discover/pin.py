"""From what the repositories offer to what the lock holds: one package set a driver by role, one a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from driverforge_build.discover.closure import Unsatisfiable, closure
from driverforge_build.discover.kernels import Kernel, Kernels
from driverforge_build.discover.offers import is_version, module_sources, offered
from driverforge_build.discover.packages import Clause, Package, PackageIndex, Requirement
from driverforge_build.lock.pins import LockedKernel, LockedPackage, Role, Roles, TargetLock
from driverforge_build.matrix.expand import flavour_of
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.globs import glob_set
from driverforge_build.matrix.model import DriverRow, OsRow
from driverforge_core.errors import DriverforgeError, InputError

FinishedModules = Callable[[PackageIndex, Kernel, DriverRow], Iterable[Package]]
"""Finds a distribution's finished modules of a driver for a kernel: of every type that it has whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """The pins of one target.

    `problems` holds what stopped a driver, by driver version; the others are whole.
    """

    target: TargetLock
    problems: Mapping[str, DriverforgeError] = field(default_factory=dict)


def pin_target(
    index: PackageIndex,
    row: OsRow,
    arch: Arch,
    drivers: Sequence[DriverRow],
    *,
    kernels: Kernels,
    finished_modules: FinishedModules,
) -> Pinned:
    """Pins for an OS and architecture out of its merged indexes."""
    results = {driver.version: _try_driver(index, row, driver, kernels.found) for driver in drivers}
    problems = {
        version: result for version, result in results.items() if isinstance(result, DriverforgeError)
    }
    pins = {
        version: result for version, result in results.items() if not isinstance(result, DriverforgeError)
    }
    target = TargetLock(
        os=row.id,
        arch=arch,
        drivers=pins,
        kernels={
            kernel.release.text: _locked_kernel(index, kernel, drivers, finished_modules)
            for kernel in kernels.found
        },
        without_headers=tuple(release.text for release in kernels.without_headers),
    )
    return Pinned(target=target, problems=problems)


def _try_driver(
    index: PackageIndex, row: OsRow, driver: DriverRow, kernels: Sequence[Kernel]
) -> Roles | DriverforgeError:
    try:
        roles = pin_driver(index, row, driver, kernels)
    except (InputError, Unsatisfiable) as error:
        return error
    return {role: tuple(locked(package) for package in packages) for role, packages in roles.items()}


def pin_driver(
    index: PackageIndex, row: OsRow, driver: DriverRow, kernels: Sequence[Kernel]
) -> dict[Role, tuple[Package, ...]]:
    """A driver's packages by role (lock.pins.Role).

    InputError where the repositories hold another version than the row names.
    """
    wanted = glob_set(driver.kernels)
    mine = [kernel for kernel in kernels if wanted(kernel.series.id)]
    tools = closure(index, _names([row.python.package, *row.tools.runtime]))
    compilers = {name for kernel in mine for name in (kernel.compiler, *kernel.series.compilers)}
    build = _names([*row.tools.jit, *sorted(compilers)])
    build += [(requirement,) for kernel in mine for requirement in kernel.links]
    roles: dict[Role, tuple[Package, ...]] = {"tools": tools, "toolchain": closure(index, build, given=tools)}
    # with an archive of NVIDIA's these are what it has not: the fabric manager and its like
    if driver.userspace or driver.companions:
        exact = [_exact(index, row, driver, name) for name in driver.userspace]
        exact += [_companion(index, row, driver, name) for name in driver.companions]
        roots = [(Requirement(name=one.name, relation="=", version=one.version),) for one in exact]
        roles["userspace"] = closure(index, roots, given=tools, upstream=driver.version)
    if driver.payload != "packages":
        return roles
    if not driver.vendor_modules:
        sources = {name for source in module_sources(driver) for name in source.packages}
        roles["source"] = tuple(_exact(index, row, driver, name) for name in sorted(sources))
    if driver.firmware is not None:
        roles["firmware"] = (_exact(index, row, driver, driver.firmware.package),)
    return roles


def locked(package: Package) -> LockedPackage:
    return LockedPackage(
        name=package.name,
        version=package.version,
        arch=package.arch,
        path=package.path,
        sha256=package.sha256,
        size=package.size,
        suite=package.suite,
    )


def _names(names: Iterable[str]) -> list[Clause]:
    return [(Requirement(name=name),) for name in names]


def _exact(index: PackageIndex, row: OsRow, driver: DriverRow, template: str) -> Package:
    """A package in the driver's own version."""
    (name,) = driver.filled([template])
    offers = offered(index, driver, name)
    found = next((package for package in offers if is_version(package, driver.version)), None)
    if found is None:
        raise _other_version(row, driver, name, offers)
    return found


def _companion(index: PackageIndex, row: OsRow, driver: DriverRow, template: str) -> Package:
    """A package with versions of its own (nvidia-modprobe).

    The newest of the driver's branch, else the newest.
    """
    (name,) = driver.filled([template])
    offers = offered(index, driver, name)
    if not offers:
        raise _other_version(row, driver, name, offers)
    return next(
        (package for package in offers if package.upstream.partition(".")[0] == driver.branch), offers[0]
    )


def _other_version(row: OsRow, driver: DriverRow, name: str, offers: Sequence[Package]) -> InputError:
    there = ", ".join(f"{package.version} ({package.suite})" for package in offers)
    newest = offers[0].upstream if offers else ""
    return InputError(
        f"{row.id}: the repositories do not have {name} {driver.version}",
        details=[f"they have {there}" if there else f"they do not have {name} at all"],
        resolution=(
            f"set `version: {newest}` for driver {driver.id} of {row.id} in the matrix, and lock again"
            if newest
            else f"check packages and repositories of driver {driver.id} of {row.id} in the matrix"
        ),
    )


def _locked_kernel(
    index: PackageIndex, kernel: Kernel, drivers: Sequence[DriverRow], finished_modules: FinishedModules
) -> LockedKernel:
    vendor = {
        driver.version: tuple(locked(package) for package in finished_modules(index, kernel, driver))
        for driver in drivers
        if driver.vendor_modules
    }
    return LockedKernel(
        release=kernel.release.text,
        flavour=flavour_of(kernel.release),
        compiler=kernel.compiler,
        headers=tuple(locked(package) for package in kernel.headers),
        image=locked(kernel.image) if kernel.image else None,
        modules=tuple(locked(package) for package in kernel.modules),
        vendor={version: packages for version, packages in vendor.items() if packages},
    )
