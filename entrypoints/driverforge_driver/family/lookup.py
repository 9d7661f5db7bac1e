"""The family of an operating system."""

from __future__ import annotations

from driverforge_core.errors import Unsupported
from driverforge_core.osid import OsRelease
from driverforge_driver.family import debian, rhel, suse
from driverforge_driver.family.protocol import Family
from driverforge_host.catalogue import FAMILIES

# distributions without a row in matrix.yaml, which others name in their ID_LIKE
RELATIVES = {"fedora": "rhel", "centos": "rhel", "suse": "suse", "sle_hpc": "suse", "opensuse-leap": "suse"}
_MODULES: dict[str, Family] = {"debian": debian, "rhel": rhel, "suse": suse}


def family_of(release: OsRelease) -> Family:
    """The family of an OS: by its ID, else by the first known name in its ID_LIKE (os-release(5)).

    Raises Unsupported.
    """
    known = {**RELATIVES, **FAMILIES}
    for name in (release.id, *release.like):
        if name in known:
            return _MODULES[known[name]]
    raise Unsupported(
        f"no family of operating systems is known for {release.id!r}",
        details=[f"ID={release.id} ID_LIKE={' '.join(release.like)}"],
        resolution="use an image of an operating system that `driverforge matrix show` lists",
    )
