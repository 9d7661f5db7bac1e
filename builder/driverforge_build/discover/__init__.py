"""Which kernels and packages signed repositories offer, proven from the signature to a package's digest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driverforge_build.matrix.model import OsRow

DISTRIBUTIONS = ("debian",)
"""What discovery is proven for; cells of other distributions have the verdict `unknown`."""


def can_discover(row: OsRow) -> bool:
    """Whether this version reads the repositories of an OS."""
    return row.package_manager == "apt" and row.id.rstrip("0123456789.") in DISTRIBUTIONS
