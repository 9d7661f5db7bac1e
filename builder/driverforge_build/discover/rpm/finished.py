"""Finished modules of a driver in RPM packages.

SUSE's kernel module packages (KMP) have one name and the version DRIVER_kKERNEL, as in
595.71.05_k6.4.0_150700.53.40. The kernel's interface is stable within a service pack, so one serves all its
kernels. Red Hat's have the kernel's release in their name.
"""

from __future__ import annotations

from driverforge_build.discover.kernels import Kernel
from driverforge_build.discover.offers import is_version, module_sources, offered
from driverforge_build.discover.packages import Package, PackageIndex
from driverforge_build.matrix.model import DriverRow
from driverforge_core.kernel import KernelRelease


def finished_modules(index: PackageIndex, kernel: Kernel, driver: DriverRow) -> tuple[Package, ...]:
    """The packages of the module types that are there, the newest of the driver's version."""
    found: list[Package] = []
    for source in module_sources(driver):
        names = driver.filled(source.packages, release=kernel.release.text)
        offers = (_newest(index, kernel.release, driver, name) for name in names)
        whole = [package for package in offers if package is not None]
        found += whole if len(whole) == len(names) else []
    return tuple(found)


def _newest(index: PackageIndex, release: KernelRelease, driver: DriverRow, name: str) -> Package | None:
    return next(
        (
            package
            for package in offered(index, driver, name)
            if is_version(package, driver.version) and _serves(package, release)
        ),
        None,
    )


def _serves(package: Package, release: KernelRelease) -> bool:
    """Whether a KMP was built for the kernel's service pack. A version that names no kernel is no KMP's."""
    _, found, built_for = package.upstream.partition("_k")
    version = ".".join(map(str, release.version))
    return not found or built_for.startswith(f"{version}_{release.abi.partition('.')[0]}.")
