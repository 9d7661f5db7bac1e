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
    """Every package of every module type, the newest of the driver's version; empty where one is missing."""
    found: list[Package] = []
    for source in module_sources(driver):
        for name in driver.filled(source.packages, release=kernel.release.text):
            fitting = (
                package
                for package in offered(index, driver, name)
                if is_version(package, driver.version) and _serves(package, kernel.release)
            )
            if (package := next(fitting, None)) is None:
                return ()
            found.append(package)
    return tuple(found)


def _serves(package: Package, release: KernelRelease) -> bool:
    """Whether a KMP was built for the kernel's service pack. A version that names no kernel is no KMP's."""
    _, found, built_for = package.upstream.partition("_k")
    version = ".".join(map(str, release.version))
    return not found or built_for.startswith(f"{version}_{release.abi.partition('.')[0]}.")
