"""Finished modules of a driver for one kernel, as Canonical publishes them (source linux-restricted-modules).

    linux-objects-nvidia-580-server-open-K   the finished open modules
    linux-objects-nvidia-580-server-K        objects of the proprietary ones, linked when they are installed
    linux-signatures-nvidia-K                their signatures, for all branches
    linux-modules-nvidia-580-server[-open]-K empty: depends on the others, and on the driver they were made of

All of a kernel are made together, in one version, and some kernels' signatures were never published.
"""

from __future__ import annotations

from collections.abc import Sequence

from driverforge_build.discover.kernels import Kernel
from driverforge_build.discover.offered import Package, PackageIndex
from driverforge_build.discover.offers import module_sources, offered
from driverforge_build.matrix.model import DriverRow

_EMPTY, _COMMON = "linux-modules-nvidia-", "nvidia-kernel-common-"


def finished_modules(index: PackageIndex, kernel: Kernel, driver: DriverRow) -> tuple[Package, ...]:
    """The packages of the module types that are there, in one version that is of the row's driver.

    That is the one with the most types, and of those the newest. Of newer branches there are open ones alone.
    """
    offers = [
        [offered(index, driver, name) for name in driver.filled(source.packages, kernel=kernel.release)]
        for source in module_sources(driver)
    ]
    versions = dict.fromkeys(
        package.version for names in offers for packages in names for package in packages
    )
    whole = [[_whole(index, driver, names, version) for names in offers] for version in versions]
    best = max(whole, key=lambda kinds: sum(map(bool, kinds)), default=[])
    return tuple({package.name: package for packages in best for package in packages}.values())


def _whole(
    index: PackageIndex, driver: DriverRow, offers: Sequence[Sequence[Package]], version: str
) -> tuple[Package, ...]:
    """The packages of one module type in a version; empty where one is missing or of another driver."""
    same = [[package for package in packages if package.version == version] for packages in offers]
    # several repositories may have that version: the row's first one counts
    chosen = tuple(packages[0] for packages in same if packages)
    return () if len(chosen) < len(same) or _of_another_driver(index, driver, chosen) else chosen


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
