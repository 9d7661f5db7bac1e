"""Where the packages of a kernel are."""

from __future__ import annotations

from driverforge_build.discover.manager import Place, metadata_of
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
            f"the lock has no package with the kernel {kernel.release}: its repositories have headers alone",
            resolution="verify cells of other kernels; a subscription's repositories have this one",
        )
    return (kernel.image,)


def place_of(row: OsRow, arch: Arch, package: LockedPackage, settings: Settings) -> Place:
    """The repository of a package. Raises Nowhere where nothing says where that is, InputError."""
    seen = row.on(arch)
    for place in metadata_of(seen).locate(seen, arch, settings):
        if place.id == package.suite:
            return place
    raise InputError(
        f"{row.id} has no repository {package.suite}, where the lock found {package.key}",
        resolution="run `driverforge lock` again: the matrix has changed since",
    )


def blob_of(package: LockedPackage, place: Place, downloads: Downloads) -> Blob:
    """A package as a download."""
    url = place.address(package.path, downloads)
    return Blob(urls=(url,), sha256=package.sha256, size=package.size)
