"""What discovery asks of a package manager's repositories; each kind of metadata is a module that answers.

A `Place` is where a repository is. It is read into a `VerifiedRepository`, whose packages go into one
`PackageIndex` with those of the OS's other repositories; kernels and dependencies are looked for in there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from driverforge_build.discover import apt, rpm
from driverforge_build.discover.kernels import Kernel, Kernels
from driverforge_build.discover.offered import Package, PackageIndex
from driverforge_build.discover.partial import PartialCopy
from driverforge_build.discover.settings import Settings
from driverforge_build.lock.pins import LockedPackage, LockedRepository
from driverforge_build.matrix.fields import Arch, PackageManager
from driverforge_build.matrix.model import DriverRow, OsRow
from driverforge_build.ports import Downloads, LastRead


class VerifiedRepository(Protocol):
    """A repository whose metadata is trusted."""

    @property
    def id(self) -> str:
        """Its name in the matrix and in the lock."""

    @property
    def last_read(self) -> LastRead:
        """When its server last said what is in it."""

    def address(self, path: str) -> str:
        """The address of a package by its path in the lock."""

    def locked(self, arch: Arch, downloads: Downloads) -> LockedRepository:
        """What the lock says of it. Raises as Downloads."""

    def add_packages(self, index: PackageIndex, arch: Arch, downloads: Downloads) -> None:
        """Add its packages for an architecture to an index. Raises Unavailable where it has none for it."""

    def partial_copy(self, row: OsRow, arch: Arch, url: str) -> PartialCopy:
        """What a copy with some of its packages has beside them; `url` is that of its folder's parent."""


class Place(Protocol):
    """Where a repository is, and who may have signed it. Hashable: architectures may share one."""

    @property
    def id(self) -> str:
        """The repository's name in the matrix."""

    def address(self, downloads: Downloads) -> str:
        """Where its packages are, below which each has its path in the lock. Raises as `read` does."""

    def read(self, downloads: Downloads, settings: Settings) -> VerifiedRepository:
        """Fetch and verify its metadata.

        Raises TemporaryFailure, NotThere, Untrusted, Nowhere, or Unavailable where it is too old.
        """


class Metadata(Protocol):
    """One kind of repositories."""

    def locate(self, row: OsRow, arch: Arch, settings: Settings) -> Sequence[Place]:
        """Where the repositories of an OS are. Raises Nowhere where nothing says it of one."""

    def new_index(self) -> PackageIndex:
        """An empty index, with the package manager's order of versions."""

    def find_kernels(self, index: PackageIndex, row: OsRow, arch: Arch) -> Kernels:
        """The kernels of every series and flavour that a row names for an architecture."""

    def finished_modules(self, index: PackageIndex, kernel: Kernel, driver: DriverRow) -> tuple[Package, ...]:
        """The distribution's own modules of a driver for a kernel: of every type that it has whole."""

    def with_headers(self, packages: Sequence[LockedPackage]) -> Sequence[LockedPackage]:
        """Those of a kernel's header packages that have include/linux."""


_BY_MANAGER: Mapping[PackageManager, Metadata] = {"apt": apt, "dnf": rpm, "zypper": rpm}


def metadata_of(row: OsRow) -> Metadata:
    """The kind of repositories that an OS has."""
    return _BY_MANAGER[row.package_manager]
