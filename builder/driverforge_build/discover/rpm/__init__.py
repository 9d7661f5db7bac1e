"""RPM repositories, dnf's and zypper's alike: repomd.xml and primary.xml.

Satisfies `discover.manager.Metadata`.
"""

from __future__ import annotations

from collections.abc import Sequence

from driverforge_build.discover.rpm.entries import new_index
from driverforge_build.discover.rpm.finished import finished_modules
from driverforge_build.discover.rpm.kernel_rpms import find_kernels
from driverforge_build.discover.rpm.places import locate
from driverforge_build.lock.pins import LockedPackage

__all__ = ["find_kernels", "finished_modules", "locate", "new_index", "with_headers"]


def with_headers(packages: Sequence[LockedPackage]) -> list[LockedPackage]:
    """Red Hat's kernel-devel; of SUSE's the one for all architectures, the others have objects alone."""
    devel = [package for package in packages if package.name.endswith("-devel")]
    return [package for package in devel if package.arch == "noarch"] or devel
