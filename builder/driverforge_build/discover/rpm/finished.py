"""Finished modules of a driver in RPM packages.

SUSE's kernel module packages (KMP) have one name and the version DRIVER_kKERNEL, as in
595.71.05_k6.4.0_150700.53.40. The kernel's interface is stable within a service pack, so one serves all its
kernels.

Red Hat's are one for each kernel, kmod-nvidia-open-595.71.05-6.12.0-211.51.1 in version 595.71.05-3.el10_2.
The name has the kernel without its distribution; what they provide has it whole: kernel-modules =
6.12.0-211.51.1.el10_2.x86_64, of kernels with 64 KiB pages kernel-64k-modules.
"""

from __future__ import annotations

import re

from driverforge_build.discover.kernels import Kernel
from driverforge_build.discover.offered import Package, PackageIndex
from driverforge_build.discover.offers import is_version, module_sources, offered
from driverforge_build.matrix.model import DriverRow
from driverforge_core.kernel import KernelRelease

_KERNELS_MODULES = re.compile(r"kernel(?:-[a-z0-9]+)?-modules")


def finished_modules(index: PackageIndex, kernel: Kernel, driver: DriverRow) -> tuple[Package, ...]:
    """The packages of the module types that are there, the newest of the driver's version."""
    found: list[Package] = []
    for source in module_sources(driver):
        names = driver.filled(source.packages, kernel=kernel.release)
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
    """Whether a KMP was built for the kernel's service pack, any other package for that very kernel.

    One that does not say for which is its name's.
    """
    _, is_kmp, built_for = package.upstream.partition("_k")
    if is_kmp:
        version = ".".join(map(str, release.version))
        return built_for.startswith(f"{version}_{release.abi.partition('.')[0]}.")
    told = {offer.version for offer in package.provides if _KERNELS_MODULES.fullmatch(offer.name)}
    return not told or release.text.partition("+")[0] in told
