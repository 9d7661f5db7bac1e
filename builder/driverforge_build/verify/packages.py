"""Where the packages of a kernel are."""

from __future__ import annotations

from collections.abc import Mapping

from driverforge_build.discover.apt import locate
from driverforge_build.discover.machine import Machine
from driverforge_build.lock.pins import LockedKernel, LockedPackage
from driverforge_build.matrix.model import OsRow
from driverforge_build.ports import Blob
from driverforge_core.errors import InputError


def kernel_packages(kernel: LockedKernel) -> tuple[LockedPackage, ...]:
    """The packages that hold the kernel and its modules."""
    return (kernel.image,)


def blob_of(row: OsRow, package: LockedPackage, *, mirrors: Mapping[str, str], machine: Machine) -> Blob:
    """A package as a download. Raises Unavailable where nothing says where its suite is, InputError."""
    repository = next((one for one in row.repositories if one.id == package.suite), None)
    if repository is None:
        raise InputError(
            f"{row.id} has no repository {package.suite}, where the lock found {package.key}",
            resolution="run `driverforge lock` again: the matrix has changed since",
        )
    location = locate(row, repository, mirrors=mirrors, machine=machine)
    return Blob(urls=(location.pool(package.path),), sha256=package.sha256, size=package.size)
