"""Where the packages of a kernel are."""

from __future__ import annotations

from collections.abc import Iterator

from driverforge_build.discover.manager import metadata_of
from driverforge_build.discover.settings import Settings
from driverforge_build.lock.pins import LockedKernel, LockedPackage
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.model import OsRow
from driverforge_build.ports import Blob, Downloads
from driverforge_core.errors import InputError


def kernel_packages(kernel: LockedKernel) -> tuple[LockedPackage, ...]:
    """The packages that hold the kernel and its modules. Raises InputError where the lock has none."""
    if kernel.image is None:
        raise InputError(
            f"the lock has no package with the kernel {kernel.release} itself",
            details=["its repositories had headers alone"],
            resolution="leave its cells out with --skip, or lock from a repository that has it",
        )
    return (kernel.image, *kernel.modules)


def blobs_of(
    row: OsRow, arch: Arch, packages: tuple[LockedPackage, ...], downloads: Downloads, settings: Settings
) -> Iterator[Blob]:
    """Packages as downloads. The lock's digest is enough: no metadata is read again.

    Raises Unavailable where nothing says where a package's repository is, InputError.
    """
    places = {place.id: place for place in metadata_of(row).locate(row, arch, settings)}
    for package in packages:
        place = places.get(package.suite)
        if place is None:
            raise InputError(
                f"{row.id} has no repository {package.suite}, where the lock found {package.key}",
                resolution="run `driverforge lock` again: the matrix has changed since",
            )
        url = f"{place.address(downloads)}/{package.path}"
        yield Blob(urls=(url,), sha256=package.sha256, size=package.size)
