"""apt's repositories: suites with an InRelease, and Packages indexes.

Satisfies `discover.manager.Metadata`.
"""

from __future__ import annotations

from collections.abc import Sequence

from driverforge_build.discover.apt.kernel_debs import find_kernels
from driverforge_build.discover.apt.restricted_modules import finished_modules
from driverforge_build.discover.apt.stanzas import new_index
from driverforge_build.discover.apt.suite import locate
from driverforge_build.lock.pins import LockedPackage

__all__ = ["find_kernels", "finished_modules", "locate", "new_index", "with_headers"]


def with_headers(packages: Sequence[LockedPackage]) -> list[LockedPackage]:
    """The packages for one architecture have configuration and links alone."""
    return [package for package in packages if package.arch == "all"]
