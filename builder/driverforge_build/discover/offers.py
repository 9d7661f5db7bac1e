"""What the repositories of a driver's row offer of a package."""

from __future__ import annotations

from driverforge_build.discover.offered import Package, PackageIndex
from driverforge_build.matrix.model import DriverRow, ModuleSource


def offered(index: PackageIndex, driver: DriverRow, name: str) -> list[Package]:
    """Versions of a package in the repositories that the driver's row names, in the row's order.

    Where the row names none, every repository counts.
    """
    order = {suite: number for number, suite in enumerate(driver.repositories)}
    found = [package for package in index.versions(name) if not order or package.suite in order]
    return sorted(found, key=lambda package: order.get(package.suite, 0))


def is_version(package: Package, driver: str) -> bool:
    """Whether a package is of a driver's version; a KMP's goes on with the kernel that it was built for."""
    return package.upstream == driver or package.upstream.startswith(f"{driver}_k")


def module_sources(driver: DriverRow) -> tuple[ModuleSource, ...]:
    """Where the modules come from, of the types that the row offers.

    They may be fewer than those of the row that it is like.
    """
    return tuple(source for source in driver.modules if source.id in driver.module_types)
