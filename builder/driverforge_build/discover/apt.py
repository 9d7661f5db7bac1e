"""A suite of an apt repository, from its signature to its packages: InRelease, index by hash, stanzas.

A suite's address comes from --mirror, from the OS's row, or from this machine's own apt configuration, in
this order. No address is built in. The security suite has an archive of its own (`archive` of its row). An
address that is given for an OS names the main archive, and the security archive is expected beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from driverforge_build.discover import release_file, signature
from driverforge_build.discover.machine import Machine
from driverforge_build.discover.packages import PackageIndex, read_stanzas
from driverforge_build.discover.release_file import ReleaseFile
from driverforge_build.lock.pins import LockedRepository
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.model import OsRow, Repository
from driverforge_build.ports import Blob, Downloads
from driverforge_core.errors import TemporaryFailure, Unavailable, UsageError
from driverforge_core.osid import OsId
from driverforge_oci.transport import without_secrets

# apt_preferences(5): what a suite is preferred by, without and with NotAutomatic
AUTOMATIC, ON_REQUEST = (
    500,
    100,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a suite is: its archive's address, with no / at the end, and the keys that may have signed it."""

    repository: Repository
    uri: str
    keyrings: tuple[Path, ...]

    @property
    def folder(self) -> str:
        return f"{self.uri}/dists/{self.repository.id}"

    def pool(self, path: str) -> str:
        """The address of a package by its pool path."""
        return f"{self.uri}/{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite whose signature is verified. `inrelease` is the sha256 of the signed file."""

    location: Location
    release: ReleaseFile
    fingerprints: tuple[str, ...]
    inrelease: str

    def locked(self, arch: Arch) -> LockedRepository:
        indexes = [self.release.index(component, arch) for component in self.location.repository.components]
        return LockedRepository(
            suite=self.location.repository.id,
            components=self.location.repository.components,
            date=release_file.iso(self.release.date),
            valid_until=release_file.iso(self.release.valid_until),
            signed_by=self.fingerprints,
            inrelease=self.inrelease,
            indexes={path: digest.sha256 for path, digest in filter(None, indexes)},
        )


def locate(
    row: OsRow,
    repository: Repository,
    *,
    mirrors: Mapping[str, str],
    machine: Machine,
    keyrings: Sequence[Path] = (),
) -> Location:
    """Where a suite of an OS is. `mirrors` maps OS or OS/SUITE to an address; `keyrings` win over all others.

    Raises Unavailable where nothing says where the suite is, or who may sign it.
    """
    source = machine.find(OsId.parse(row.id).id, row.codename, repository.id, repository.components[0])
    given = mirrors.get(row.id) or row.mirror or ""
    exact = mirrors.get(f"{row.id}/{repository.id}", "")
    uri = exact or (_neighbour(given, row, repository) if given else (source.uri if source else ""))
    if not uri:
        raise Unavailable(
            f"{row.id}: nothing says where its suite {repository.id} is",
            details=[
                f"this machine's apt configuration is for {machine.id or 'no apt system'} "
                f"{machine.codename}".rstrip()
            ],
            resolution=f"give the address of a mirror: --mirror "
            f"{row.id}=http://MIRROR/{OsId.parse(row.id).id}",
        )
    own = [Path(row.keyring)] if row.keyring and Path(row.keyring).is_file() else []
    keys = (
        tuple(keyrings)
        or (source.signed_by if source else ())
        or tuple(own)
        or (machine.trusted if source else ())
    )
    if not keys:
        raise Unavailable(
            f"{row.id}: nothing says who may sign its suite {repository.id}",
            details=[f"{row.keyring or 'no keyring'} is not on this machine"],
            resolution="give the distribution's public keys: --keyring FILE",
        )
    return Location(repository=repository, uri=uri.rstrip("/"), keyrings=keys)


def _neighbour(given: str, row: OsRow, repository: Repository) -> str:
    """The archive of a suite beside the main one: http://mirror/debian -> http://mirror/debian-security."""
    main = next((one.archive for one in row.repositories if one.role == "main"), "")
    if repository.archive in ("", main):
        return given.rstrip("/")
    return f"{given.rstrip('/').rpartition('/')[0]}/{repository.archive}"


def read_suite(
    downloads: Downloads, location: Location, *, now: datetime, accept_expired: bool = False
) -> Suite:
    """Fetch and verify a suite's InRelease. `now` is UTC and aware.

    Raises TemporaryFailure, NotThere, Untrusted, or Unavailable where it is too old.
    """
    name = f"InRelease of {location.repository.id}"
    signed = downloads.document(f"{location.folder}/InRelease")
    verified = signature.verify(signed, location.keyrings, name=name)
    parsed = release_file.parse(verified.text, name=name)
    if location.repository.id not in (parsed.suite, parsed.codename):
        raise UsageError(
            f"{without_secrets(location.folder)} is not {location.repository.id}: it says Suite "
            f"{parsed.suite}, Codename {parsed.codename}",
            resolution="check the address given with --mirror",
        )
    if parsed.valid_until and parsed.valid_until < now and not accept_expired:
        raise Unavailable(
            f"{name} expired on {release_file.iso(parsed.valid_until)}: the mirror is not updated any more, "
            "or somebody replays old indexes",
            details=[
                without_secrets(location.folder),
                f"made on {release_file.iso(parsed.date)}; now it is {release_file.iso(now)}",
            ],
            resolution="use a mirror that is up to date; if it is a frozen copy on purpose: --accept-expired",
        )
    return Suite(
        location=location,
        release=parsed,
        fingerprints=verified.fingerprints,
        inrelease=hashlib.sha256(signed).hexdigest(),
    )


def read_packages(downloads: Downloads, suite: Suite, arch: Arch, package_index: PackageIndex) -> None:
    """Add a suite's packages to an index of them: each component's index, fetched by its hash."""
    location = suite.location
    for component in location.repository.components:
        found = suite.release.index(component, arch)
        if found is None:
            raise Unavailable(
                f"{location.repository.id} has no packages of component {component} for {arch}",
                details=[
                    f"it has components {' '.join(suite.release.components)}",
                    f"for {' '.join(suite.release.architectures)}",
                ],
                resolution="correct `components` of this repository in the matrix, or use a mirror that "
                "holds it whole",
            )
        path, digest = found
        folder, _, file_name = path.rpartition("/")
        plain = f"{location.folder}/{path}"
        by_hash = (
            (f"{location.folder}/{folder}/by-hash/SHA256/{digest.sha256}",) if suite.release.by_hash else ()
        )
        index = downloads.blob(Blob(urls=(*by_hash, plain), sha256=digest.sha256, size=digest.size))
        preference = AUTOMATIC if suite.release.automatic else ON_REQUEST
        package_index.add(
            read_stanzas(index, file_name.removeprefix("Packages")),
            suite=location.repository.id,
            preference=preference,
        )


def degraded(failures: Mapping[str, TemporaryFailure]) -> TemporaryFailure:
    """One error for the suites that do not answer now."""
    again = "run the same command again later, or with --offline to use what the cache holds"
    steps = dict.fromkeys(error.resolution for error in failures.values())
    return TemporaryFailure(
        f"discovery is degraded: {len(failures)} of the suites cannot be read now ({', '.join(failures)})",
        details=[
            line for suite, error in failures.items() for line in (f"{suite}: {error.brief}", *error.details)
        ],
        resolution="; ".join([*(step for step in steps if not again.startswith(step)), again]),
    )
