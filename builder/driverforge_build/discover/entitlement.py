"""The client certificate of a Red Hat subscription, as `subscription-manager` leaves it on a registered host.

Podman and Docker of a registered host mount it into containers, and so do images that are built there.
"""

from __future__ import annotations

from pathlib import Path

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
