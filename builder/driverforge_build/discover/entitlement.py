"""Repositories that are open to subscribers alone, and what opens them.

Of Red Hat's it is a client certificate, as `subscription-manager` leaves it on a registered host. Podman and
Docker of such a host mount it into containers, and so do images that are built there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from driverforge_build.discover.settings import Nowhere
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.model import DriverRow, OsRow
from driverforge_build.ports import ClientCertificate
from driverforge_core.errors import InputError

# of the host itself; of a container on one (/usr/share/rhel/secrets is mounted there)
_FOLDERS = ("etc/pki/entitlement", "run/secrets/etc-pki-entitlement", "etc/pki/entitlement-host")
_AUTHORITIES = ("etc/rhsm/ca/redhat-uep.pem", "run/secrets/rhsm/ca/redhat-uep.pem")
_KEY = "-key.pem"


def find_entitlement(given: Path | None, *, root: Path = Path("/")) -> ClientCertificate | None:
    """The certificate in a folder that is given, else one of this machine; None where it has none.

    Raises InputError for a folder that is given and has none.
    """
    if given is not None:
        found = _in(given, root)
        if found is None:
            raise InputError(
                f"{given} has no certificate of a subscription",
                details=[f"it holds {path.name}" for path in sorted(given.iterdir())[:5]],
                resolution="copy NUMBER.pem and NUMBER-key.pem of a registered host's /etc/pki/entitlement",
            )
        return found
    return next(filter(None, (_in(root / folder, root) for folder in _FOLDERS)), None)


def _in(folder: Path, root: Path) -> ClientCertificate | None:
    for key in sorted(folder.glob(f"*{_KEY}")):
        certificate = key.with_name(key.name.removesuffix(_KEY) + ".pem")
        if certificate.is_file():
            places = (folder / "redhat-uep.pem", *(root / place for place in _AUTHORITIES))
            authorities = next((place for place in places if place.is_file()), None)
            return ClientCertificate(certificate=certificate, key=key, authorities=authorities)
    return None


def closed_repositories(row: OsRow, read: Iterable[str]) -> tuple[str, ...]:
    """The repositories of a row, as an architecture sees it, that want a subscription and were not `read`.

    Not those that are optional, which a subscription need not have.
    """
    known = set(read)
    wanted = (one.id for one in row.repositories if one.entitled and not one.optional)
    return tuple(name for name in wanted if name not in known)


def left_out(row: OsRow, arch: Arch, closed: Sequence[str], why: Mapping[str, Nowhere]) -> Nowhere:
    """What is missing where repositories are closed, and how they are opened.

    `why` has those that were asked and refused.
    """
    open_to_all = {one.id for one in row.repositories if not one.entitled}
    held = [
        f"kernels {series.id}"
        for series in row.kernels
        if series.flavours.get(arch) and open_to_all.isdisjoint(series.repositories)
    ]
    held += [f"driver {driver.id}" for driver in row.drivers if set(driver.repositories) & set(closed)]
    refused = [line for error in why.values() for line in (error.brief, *error.details)]
    return Nowhere(
        f"{row.id}-{arch}: a subscription is needed for {' and '.join(closed)}",
        details=[*refused, f"left out: {', '.join(held)}"] if held else refused,
        resolution=next((error.resolution for error in why.values()), _how_to_open(row, closed[0])),
    )


def _how_to_open(row: OsRow, name: str) -> str:
    addressed = any(one.urls or one.mirrorlist for one in row.repositories if one.id == name)
    if addressed:
        return (
            "run it on a registered host, or give the certificate of one (--entitlement DIR, its "
            f"/etc/pki/entitlement), or a copy of your own: --mirror {row.id}/{name}=https://MIRROR/ADDRESS"
        )
    return (
        "run it on a registered host that has a repository of that id, or give its address with the login of "
        f"the subscription: --mirror {row.id}/{name}=https://USER:PASSWORD@MIRROR/ADDRESS"
    )


def needs(driver: DriverRow, closed: Collection[str]) -> bool:
    """Whether a driver's own packages may be in a closed repository."""
    return bool(set(driver.repositories) & set(closed))
