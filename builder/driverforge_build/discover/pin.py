"""From what the repositories offer to what the lock holds: one package set a driver by role, one a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from driverforge_build.discover.closure import Unsatisfiable, closure
from driverforge_build.discover.kernels import Kernel, Kernels
from driverforge_build.discover.packages import Clause, Package, PackageIndex, Requirement
from driverforge_build.lock.pins import LockedKernel, LockedPackage, Role, Roles, TargetLock
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.globs import glob_set
from driverforge_build.matrix.model import DriverRow, ModuleSource, OsRow
from driverforge_core.errors import DriverforgeError, InputError


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
    kernels: Kernels,
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
        kernels={kernel.release.text: _locked_kernel(index, kernel, drivers) for kernel in kernels.found},
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
    if driver.payload != "packages":
        return roles
    exact = [_exact(index, row, driver, name) for name in driver.userspace]
    exact += [_companion(index, row, driver, name) for name in driver.companions]
    roots = [(Requirement(name=package.name, relation="=", version=package.version),) for package in exact]
    roles["userspace"] = closure(index, roots, given=tools, upstream=driver.version)
    if not driver.vendor_modules:
        sources = {name for source in _module_sources(driver) for name in source.packages}
        roles["source"] = tuple(_exact(index, row, driver, name) for name in sorted(sources))
    if driver.firmware is not None:
        roles["firmware"] = (_exact(index, row, driver, driver.firmware.package),)
    return roles


def _module_sources(driver: DriverRow) -> tuple[ModuleSource, ...]:
    """Where the modules come from, of the types that the row offers.

    They may be fewer than those of the row that it is like.
    """
    return tuple(source for source in driver.modules if source.id in driver.module_types)


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
    offered = _offered(index, driver, name)
    found = next((package for package in offered if package.upstream == driver.version), None)
    if found is None:
        raise _other_version(row, driver, name, offered)
    return found


def _companion(index: PackageIndex, row: OsRow, driver: DriverRow, template: str) -> Package:
    """A package with versions of its own (nvidia-modprobe).

    The newest of the driver's branch, else the newest.
    """
    (name,) = driver.filled([template])
    offered = _offered(index, driver, name)
    if not offered:
        raise _other_version(row, driver, name, offered)
    return next(
        (package for package in offered if package.upstream.partition(".")[0] == driver.branch), offered[0]
    )


def _offered(index: PackageIndex, driver: DriverRow, name: str) -> list[Package]:
    """Versions of a package in the repositories that the driver's row names, in the row's order.

    Where the row names none, every repository counts.
    """
    order = {suite: number for number, suite in enumerate(driver.repositories)}
    offered = [package for package in index.versions(name) if not order or package.suite in order]
    return sorted(offered, key=lambda package: order.get(package.suite, 0))


def _other_version(row: OsRow, driver: DriverRow, name: str, offered: Sequence[Package]) -> InputError:
    there = ", ".join(f"{package.version} ({package.suite})" for package in offered)
    newest = offered[0].upstream if offered else ""
    return InputError(
        f"{row.id}: the repositories do not have {name} {driver.version}",
        details=[f"they have {there}" if there else f"they do not have {name} at all"],
        resolution=(
            f"set `version: {newest}` for driver {driver.id} of {row.id} in the matrix, and lock again"
            if newest
            else f"check packages and repositories of driver {driver.id} of {row.id} in the matrix"
        ),
    )


def _locked_kernel(index: PackageIndex, kernel: Kernel, drivers: Sequence[DriverRow]) -> LockedKernel:
    vendor = {
        driver.version: _vendor_modules(index, kernel, driver) for driver in drivers if driver.vendor_modules
    }
    return LockedKernel(
        release=kernel.release.text,
        flavour=kernel.release.flavour,
        compiler=kernel.compiler,
        headers=tuple(locked(package) for package in kernel.headers),
        image=locked(kernel.image),
        vendor={version: packages for version, packages in vendor.items() if packages},
    )


def _vendor_modules(index: PackageIndex, kernel: Kernel, driver: DriverRow) -> tuple[LockedPackage, ...]:
    """The distribution's finished modules for a kernel: every package of every module type, in one version.

    Empty where no version has them all: modules, objects and signatures are made together, and some kernels'
    signatures were never published.
    """
    names = [
        name
        for source in _module_sources(driver)
        for name in driver.filled(source.packages, release=kernel.release.text)
    ]
    offered = [_offered(index, driver, name) for name in names]
    for version in (package.version for package in (offered[0] if offered else ())):
        same = [[package for package in packages if package.version == version] for packages in offered]
        if all(same):
            # several repositories may have that version: the row's first one counts
            return tuple(locked(first) for first, *_ in same)
    return ()
