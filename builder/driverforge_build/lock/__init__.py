"""The lock: every download of every cell, pinned by pool path and sha256, and where it is known from.

`pins` are the values, `file` writes and reads them, `compare` tells what changed between two locks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driverforge_build.matrix.model import OsRow

DISTRIBUTIONS = ("debian",)
"""What discovery is proven for; cells of other distributions have the verdict `unknown`."""


def can_lock(row: OsRow) -> bool:
    """Whether this version reads the repositories of an OS, so that `lock` can pin what it needs."""
    return row.package_manager == "apt" and row.id.rstrip("0123456789.") in DISTRIBUTIONS
