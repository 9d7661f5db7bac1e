"""What a build is given of a subscription: a .repo file with its repositories, and what opens them.

Each repository names its own certificate, so that no other host sees it (dnf.conf(5), sslclientcert).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from driverforge_build.discover.rpm.places import RpmPlace, locate_entitled
from driverforge_build.discover.settings import Settings
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.model import OsRow
from driverforge_build.ports import ClientCertificate
from driverforge_core.errors import InputError

_SECRETS = "/run/secrets/subscription-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The repositories of one OS and architecture that are open. `repo_file` may hold a login.

    The files of `certificate` are where it names them: the build secrets subscription-certificate,
    subscription-key, subscription-authorities.
    """

    ids: frozenset[str]
    repo_file: str = field(repr=False)
    certificate: ClientCertificate | None = None


def subscription(row: OsRow, arch: Arch, settings: Settings) -> Subscription:
    """What is open of an OS; nothing of it by a certificate that is not for us to read."""
    places = [place for place in locate_entitled(row, arch, settings) if _readable(place.certificate)]
    # a subscription has one certificate for all that it covers
    certificate = next((place.certificate for place in places if place.certificate), None)
    return Subscription(
        ids=frozenset(place.id for place in places),
        repo_file="\n".join(map(_section, places)),
        certificate=certificate,
    )


def _section(place: RpmPlace) -> str:
    address = f"baseurl={place.uri}" if place.uri else f"mirrorlist={place.mirrorlist}"
    # what is downloaded has to have the sha256 of the lock
    lines = [f"[{place.id}]", f"name={place.id}", address, "enabled=1", "gpgcheck=0"]
    if place.certificate:
        lines += [f"sslclientcert={_SECRETS}certificate", f"sslclientkey={_SECRETS}key"]
        if place.certificate.authorities:
            lines.append(f"sslcacert={_SECRETS}authorities")
    return "".join(f"{line}\n" for line in lines)


def check_readable(certificate: ClientCertificate) -> None:
    """Raises InputError for a certificate that a user gave and we may not read."""
    if not _readable(certificate):
        raise InputError(
            f"the certificate {certificate.certificate} or its key cannot be read",
            resolution="give a copy that you may read: --entitlement DIR",
        )


def _readable(certificate: ClientCertificate | None) -> bool:
    if certificate is None:
        return True
    files = filter(None, (certificate.certificate, certificate.key, certificate.authorities))
    return all(os.access(file, os.R_OK) for file in files)


def secrets_of(given: Subscription, folder: Path, ca: Path | None) -> dict[str, Path]:
    """The build secrets of a subscription, by id; what is written for them is below `folder`."""
    if not given.ids:
        return {}
    found = {"subscription": _private(folder / "subscription", given.repo_file.encode())}
    if certificate := given.certificate:
        found |= {"subscription-certificate": certificate.certificate, "subscription-key": certificate.key}
        if certificate.authorities:
            # a site's own stand beside them, for it may have a proxy or a copy of its own
            trusted = [file.read_bytes().rstrip() + b"\n" for file in (certificate.authorities, ca) if file]
            found["subscription-authorities"] = _private(folder / "authorities", b"".join(trusted))
    return found


def _private(file: Path, content: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_bytes(content)
    return file
