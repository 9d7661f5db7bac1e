"""From what the repositories offer to what the lock holds: one package set a driver by role, one a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from driverforge_build.discover.closure import Unsatisfiable, closure
from driverforge_build.discover.kernels import Kernel, Kernels
from driverforge_build.discover.offered import Clause, Package, PackageIndex, Requirement
from driverforge_build.discover.offers import is_version, module_sources, offered
from driverforge_build.lock.pins import LockedKernel, LockedPackage, Role, TargetLock
from driverforge_build.lock.sound import sound_package
from driverforge_build.matrix.expand import flavour_of
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.globs import glob_set
from driverforge_build.matrix.model import DriverRow, OsRow
from driverforge_core.errors import DriverforgeError, InputError

_Key = TypeVar("_Key")

FinishedModules = Callable[[PackageIndex, Kernel, DriverRow], Iterable[Package]]
"""Finds a distribution's finished modules of a driver for a kernel: of every type that it has whole."""

Pins = Mapping[Package, LockedPackage]
"""What the lock says of packages."""


class OtherVersion(InputError):
    """A package is there, but not in the version of the driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """The pins of one target.

    `problems` holds what stopped a driver, by driver version; the others are whole. `unfit` is what keeps
    drivers from having what nodes with NVSwitches run: their images serve the others. `kernels` are all that
    the repositories have.
    """

    target: TargetLock
    kernels: Kernels
    problems: Mapping[str, DriverforgeError] = field(default_factory=dict)
    unfit: Mapping[str, DriverforgeError] = field(default_factory=dict)


def pin_target(
    index: PackageIndex,
    row: OsRow,
    arch: Arch,
    drivers: Sequence[DriverRow],
    *,
    kernels: Kernels,
    finished_modules: FinishedModules,
    pins_of: Callable[[Iterable[Package]], Pins],
) -> Pinned:
    """Pins for an OS and architecture out of its merged indexes.

    `pins_of` gives those of packages, and raises InputError for one that may not stand in the lock.
    """
    chosen: dict[str, dict[Role, tuple[Package, ...]]] = {}
    problems: dict[str, DriverforgeError] = {}
    unfit: dict[str, DriverforgeError] = {}
    for driver in drivers:
        try:
            roles = pin_driver(index, row, driver, kernels.found)
        except (InputError, Unsatisfiable) as error:
            problems[driver.version] = error
            continue
        try:
            roles |= pin_fabric(index, row, driver, roles)
        except (InputError, Unsatisfiable) as error:
            unfit[driver.version] = error
        chosen[driver.version] = roles
    vendors = [_vendors(index, kernel, drivers, finished_modules) for kernel in kernels.found]
    pins = pins_of(
        [
            *(one for roles in chosen.values() for packages in roles.values() for one in packages),
            *(one for kernel in kernels.found for one in kernel.packages),
            *(one for vendor in vendors for packages in vendor.values() for one in packages),
        ]
    )
    target = TargetLock(
        os=row.id,
        arch=arch,
        drivers={version: _taken(roles, pins) for version, roles in chosen.items()},
        kernels={
            kernel.release.text: _locked_kernel(kernel, _taken(vendor, pins), pins)
            for kernel, vendor in zip(kernels.found, vendors, strict=True)
        },
        without_headers=tuple(release.text for release in kernels.without_headers),
    )
    return Pinned(target=target, kernels=kernels, problems=problems, unfit=unfit)


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
        asked = [_exact(index, row, driver, name) for name in driver.userspace]
        asked += [_companion(index, row, driver, name) for name in driver.companions]
        roles["userspace"] = closure(index, _these(asked), given=tools, upstream=driver.version)
    if driver.payload != "packages":
        return roles
    if not driver.vendor_modules:
        sources = {name for source in module_sources(driver) for name in source.packages}
        roles["source"] = tuple(_exact(index, row, driver, name) for name in sorted(sources))
    if driver.firmware is not None:
        roles["firmware"] = (_exact(index, row, driver, driver.firmware.package),)
    return roles


def pin_fabric(
    index: PackageIndex, row: OsRow, driver: DriverRow, roles: Mapping[Role, tuple[Package, ...]]
) -> dict[Role, tuple[Package, ...]]:
    """What nodes with NVSwitches run, from whichever repository; nothing where the row names none.

    `roles` are the driver's others. Raises OtherVersion, InputError where it is not there at all, and
    Unsatisfiable.
    """
    fabric = row.fabric_of(driver)
    if fabric is None:
        return {}
    anywhere = driver.model_copy(update={"repositories": ()})
    asked = [_exact(index, row, anywhere, name) for name in fabric.packages]
    asked += [_companion(index, row, anywhere, name) for name in fabric.companions]
    given = (*roles["tools"], *roles.get("userspace", ()))
    return {"fabric": closure(index, _these(asked), given=given, upstream=driver.version)}


def _these(packages: Iterable[Package]) -> list[Clause]:
    return [(Requirement(name=one.name, relation="=", version=one.version),) for one in packages]


def locked(package: Package, sha256: str) -> LockedPackage:
    """The pin of a package. Raises InputError for one that says what may not stand in the lock."""
    pin = LockedPackage(
        name=package.name,
        version=package.version,
        arch=package.arch,
        path=package.path,
        sha256=sha256,
        size=package.size,
        suite=package.suite,
    )
    try:
        return sound_package(pin)
    except ValueError as error:
        raise InputError(
            f"the index of {package.suite} has a package that cannot be pinned",
            details=[str(error)],
            resolution="use another mirror: this one's index is not what the package manager would read",
        ) from None


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
    brief = f"{row.id}: the repositories do not have {name} {driver.version}"
    if not offers:
        return InputError(
            brief,
            details=[f"they do not have {name} at all"],
            resolution=f"check packages and repositories of driver {driver.id} of {row.id} in the matrix",
        )
    # NVIDIA's repositories have all branches
    fitting = [one for one in offers if one.upstream.partition(".")[0] == driver.branch] or offers
    there = ", ".join(f"{package.version} ({package.suite})" for package in fitting)
    return OtherVersion(
        brief,
        details=[f"they have {there}"],
        resolution=f"set `version: {fitting[0].upstream}` for driver {driver.id} of {row.id} in the matrix, "
        "and lock again",
    )


def _taken(chosen: Mapping[_Key, tuple[Package, ...]], pins: Pins) -> dict[_Key, tuple[LockedPackage, ...]]:
    return {key: tuple(pins[package] for package in packages) for key, packages in chosen.items()}


def _locked_kernel(
    kernel: Kernel, vendor: Mapping[str, tuple[LockedPackage, ...]], pins: Pins
) -> LockedKernel:
    return LockedKernel(
        release=kernel.release.text,
        flavour=flavour_of(kernel.release),
        compiler=kernel.compiler,
        headers=tuple(pins[package] for package in kernel.headers),
        image=pins[kernel.image] if kernel.image else None,
        modules=tuple(pins[package] for package in kernel.modules),
        vendor=vendor,
    )


def _vendors(
    index: PackageIndex, kernel: Kernel, drivers: Sequence[DriverRow], finished_modules: FinishedModules
) -> dict[str, tuple[Package, ...]]:
    """A distribution's finished modules of a kernel, by driver version."""
    found = {
        driver.version: tuple(finished_modules(index, kernel, driver))
        for driver in drivers
        if driver.vendor_modules
    }
    return {version: packages for version, packages in found.items() if packages}
