"""Repositories that are open to subscribers alone, and what opens them.

Of Red Hat's it is a client certificate, as `subscription-manager` leaves it on a registered host. Podman and
Docker of such a host mount it into containers, and so do images that are built there. Of SUSE's it is a
login, as SUSEConnect leaves it there (zypper(8), credentials.d) and builds have it as a secret.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from driverforge_build.discover.settings import Login, Nowhere
from driverforge_build.discover.signature import Untrusted
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.model import DriverRow, OsRow
from driverforge_build.ports import ClientCertificate
from driverforge_core.errors import DriverforgeError, InputError, TemporaryFailure, Unavailable

# of the host itself; of a container on one (/usr/share/rhel/secrets is mounted there)
_FOLDERS = ("etc/pki/entitlement", "run/secrets/etc-pki-entitlement", "etc/pki/entitlement-host")
_AUTHORITIES = ("etc/rhsm/ca/redhat-uep.pem", "run/secrets/rhsm/ca/redhat-uep.pem")
_KEY = "-key.pem"
SCC = "SCCcredentials"
_LOGINS = ("etc/zypp/credentials.d", "run/secrets/credentials.d", "run/secrets")


def find_entitlement(given: Path | None, *, root: Path = Path("/")) -> ClientCertificate | None:
    """The certificate in a folder that is given, else one of this machine; None where it has none.

    Raises InputError for a folder that is given and has none, nor a login of SUSE's.
    """
    if given is not None:
        found = _in(given, root)
        if found is None and not (given / SCC).is_file():
            raise InputError(
                f"{given} has no certificate of a subscription",
                details=[f"it holds {path.name}" for path in sorted(given.iterdir())[:5]],
                resolution="copy NUMBER.pem and NUMBER-key.pem of a registered host's /etc/pki/entitlement, "
                f"or {SCC} of its /etc/zypp/credentials.d",
            )
        return found
    return next(filter(None, (_in(root / folder, root) for folder in _FOLDERS)), None)


def find_logins(given: Path | None, *, root: Path = Path("/")) -> dict[str, Login]:
    """The logins in a folder that is given, else those of this machine, by the name of their file.

    Raises InputError for a file in a given folder that has none.
    """
    if given is not None:
        if not (given / SCC).is_file():
            return {}
        if (login := _login(given / SCC)) is None:
            raise InputError(
                f"{given / SCC} has no login",
                details=["it has no username= and password="],
                resolution=f"copy {SCC} of a registered host's /etc/zypp/credentials.d",
            )
        return {SCC: login}
    found: dict[str, Login] = {}
    for folder in _LOGINS:
        names = "*" if folder.startswith("etc/") else SCC
        for path in sorted((root / folder).glob(names)):
            if path.name not in found and (login := _login(path)) is not None:
                found[path.name] = login
    return found


def _login(path: Path) -> Login | None:
    """What a file says; None where it says nothing, or is not for us to read: another one's."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    told = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
    username, password = told.get("username", ""), told.get("password", "")
    return Login(username=username, password=password) if username and password else None


def logged_in(address: str, logins: Mapping[str, Login], *, entitled: bool) -> str | None:
    """An address with the login that it names itself, or that opens what is `entitled`.

    It is what zypper makes of ?credentials=NAME. A login goes by TLS alone. None where the file that an
    address names is not there.
    """
    parts = urlsplit(address)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    name = query.pop("credentials", None)
    if name is None and not (entitled and parts.scheme == "https" and not parts.query):
        return address
    login = logins.get(name or SCC)
    if name is not None:
        parts = parts._replace(query=urlencode(query))
    if parts.username is not None or (login is None and name is None):
        return address
    if login is None or parts.scheme != "https":
        return None
    user = f"{quote(login.username, safe='')}:{quote(login.password, safe='')}"
    return urlunsplit(parts._replace(netloc=f"{user}@{parts.netloc}"))


def _in(folder: Path, root: Path) -> ClientCertificate | None:
    for key in sorted(folder.glob(f"*{_KEY}")):
        certificate = key.with_name(key.name.removesuffix(_KEY) + ".pem")
        if certificate.is_file():
            places = (folder / "redhat-uep.pem", *(root / place for place in _AUTHORITIES))
            authorities = next((place for place in places if place.is_file()), None)
            return ClientCertificate(certificate=certificate, key=key, authorities=authorities)
    return None


def left_out(
    row: OsRow,
    arch: Arch,
    closed: Sequence[str],
    why: Mapping[str, Nowhere],
    drivers: Mapping[str, DriverforgeError],
) -> Nowhere:
    """What is missing where repositories are closed, and how they are opened.

    `why` has those that were asked and refused, `drivers` what the others do not have, by driver version.
    """
    open_to_all = {one.id for one in row.repositories if not one.entitled}
    held = [
        f"kernels {series.id}"
        for series in row.kernels
        if series.flavours.get(arch) and open_to_all.isdisjoint(series.repositories)
    ]
    held += [f"driver {driver.id}" for driver in row.drivers if set(driver.repositories) & set(closed)]
    told = [line for error in why.values() for line in (error.brief, *error.details)]
    told += [f"left out: {', '.join(held)}"] if held else []
    # a package of a driver that names no repository may be in any of them
    unnamed = {driver.version for driver in row.drivers if not driver.repositories}
    told += [
        f"left out: driver {version}: {error.brief}"
        for version, error in drivers.items()
        if version in unnamed
    ]
    free = [one for one in row.repositories if not (one.entitled or one.optional)]
    shut = [one for one in row.drivers if set(one.repositories) & set(closed) or one.version in drivers]
    if free and any("jit" in one.variants and one not in shut for one in row.drivers):
        told.append(f"JIT images{' of the other drivers' if shut else ''} are made without it")
    return Nowhere(
        f"{row.id}-{arch}: a subscription is needed for {' and '.join(closed)}",
        details=told,
        resolution=next((error.resolution for error in why.values()), _how_to_open(row, closed[0])),
    )


def _how_to_open(row: OsRow, name: str) -> str:
    addressed = row.package_manager != "zypper" and any(
        one.urls or one.mirrorlist for one in row.repositories if one.id == name
    )
    if addressed:
        return (
            "run it on a registered host, or give the certificate of one (--entitlement DIR, its "
            f"/etc/pki/entitlement), or a copy of your own: --mirror {row.id}/{name}=https://MIRROR/ADDRESS"
        )
    if row.package_manager == "zypper":
        return (
            f"run it on a registered host, or give the login of one (--entitlement DIR with its {SCC} of "
            "/etc/zypp/credentials.d), and where it has no address of that id: "
            f"--mirror {row.id}/{name}=https://MIRROR/ADDRESS"
        )
    return (
        "run it on a registered host that has a repository of that id, or give its address with the login of "
        f"the subscription: --mirror {row.id}/{name}=https://USER:PASSWORD@MIRROR/ADDRESS"
    )


def without_vendors(
    row: OsRow,
    arch: Arch,
    unread: Mapping[str, DriverforgeError],
    drivers: Collection[str],
    fabric: Mapping[str, DriverforgeError],
) -> DriverforgeError:
    """What is missing where vendors' repositories were not read: `drivers`, and of others the `fabric`."""
    told = [line for error in unread.values() for line in (error.brief, *error.details)]
    told += [f"left out: driver {version}" for version in drivers]
    if fabric:
        told.append(
            f"left out: what nodes with NVSwitches need beside {', '.join(fabric)}: "
            f"{next(iter(fabric.values())).brief}"
        )
    for_now = any(isinstance(error, (TemporaryFailure, Untrusted)) for error in unread.values())
    kind = TemporaryFailure if for_now else Unavailable
    steps = [error.resolution for error in (*unread.values(), *fabric.values())]
    otherwise = "the rows of these drivers name it" if drivers else "images without it serve all other nodes"
    return kind(
        f"{row.id}-{arch}: read without {' and '.join(unread) or 'all that its row names'}",
        details=told,
        resolution=f"{steps[0]}; {otherwise}",
    )


def needs(driver: DriverRow, closed: Collection[str]) -> bool:
    """Whether a driver's packages may be in a closed repository: in any where its row names none."""
    return bool(set(driver.repositories or closed) & set(closed))
