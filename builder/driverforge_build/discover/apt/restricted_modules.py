"""Finished modules of a driver for one kernel, as Canonical publishes them (source linux-restricted-modules).

    linux-objects-nvidia-580-server-open-K   the finished open modules
    linux-objects-nvidia-580-server-K        objects of the proprietary ones, linked when they are installed
    linux-signatures-nvidia-K                their signatures, for all branches
    linux-modules-nvidia-580-server[-open]-K empty: depends on the others, and on the driver they were made of

All of a kernel are made together, in one version, and some kernels' signatures were never published.
"""

from __future__ import annotations

from driverforge_build.discover.kernels import Kernel
from driverforge_build.discover.offers import module_sources, offered
from driverforge_build.discover.packages import Package, PackageIndex
from driverforge_build.matrix.model import DriverRow

_EMPTY, _COMMON = "linux-modules-nvidia-", "nvidia-kernel-common-"


def finished_modules(index: PackageIndex, kernel: Kernel, driver: DriverRow) -> tuple[Package, ...]:
    """Every package of every module type, in the newest version that has them all and is of the row's driver.

    Empty where there is none.
    """
    names = [
        name
        for source in module_sources(driver)
        for name in driver.filled(source.packages, release=kernel.release.text)
    ]
    offers = [offered(index, driver, name) for name in names]
    for version in (package.version for package in (offers[0] if offers else ())):
        same = [[package for package in packages if package.version == version] for packages in offers]
        # several repositories may have that version: the row's first one counts
        if all(same) and not _of_another_driver(index, driver, chosen := tuple(first for first, *_ in same)):
            return chosen
    return ()


def _of_another_driver(index: PackageIndex, driver: DriverRow, chosen: tuple[Package, ...]) -> bool:
    """Whether the empty package beside the modules binds them to another version of the driver.

    It depends on nvidia-kernel-common-580-server (>= 580.173.02), and on the same (<= 580.173.02-1).
    """
    names = {package.name.replace("linux-objects-", "linux-modules-") for package in chosen}
    versions = {package.version for package in chosen}
    return any(
        requirement.name.startswith(_COMMON) and not index.admits(requirement, f"{driver.version}-0")
        for name in names
        if name.startswith(_EMPTY)
        for package in index.versions(name)
        if package.version in versions
        for requirement, *_ in package.depends
    )
