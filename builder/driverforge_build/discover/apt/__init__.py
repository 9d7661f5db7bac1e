"""apt's repositories: suites with an InRelease, and Packages indexes.

Satisfies `discover.manager.Metadata`.
"""

from __future__ import annotations

from driverforge_build.discover.apt.kernel_debs import find_kernels
from driverforge_build.discover.apt.restricted_modules import finished_modules
from driverforge_build.discover.apt.stanzas import new_index
from driverforge_build.discover.apt.suite import locate
from driverforge_build.lock.pins import LockedPackage

__all__ = ["find_kernels", "finished_modules", "has_headers", "locate", "new_index"]


def has_headers(package: LockedPackage) -> bool:
    """The packages for one architecture hold configuration and links alone."""
    return package.arch == "all"
