"""A copy of a repository that has some of its packages alone, under its own index with its own signature.

Nothing is generated and nothing is signed anew: apt, dnf and zypper read an index that names more packages
than there are, and believe it for the same reason as at the vendor's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driverforge_build.ports import Listed


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialCopy:
    """What belongs to a copy beside packages.

    `folder` is where it lies among those of its OS, `index` are the files that a package manager reads, by
    their paths there, the one that is signed last. `definition` is what its configuration says.
    """

    folder: str
    index: Mapping[str, Listed]
    definition: str
