"""A suite of an apt repository, from its signature to its packages: InRelease, index by hash, stanzas.

A suite's address comes from --mirror, from the OS's row, from this machine's own apt configuration, or from
the suite's row, in this order. The security suite has an archive of its own (`archive` of its row). An
address that is given for an OS names the main archive, and the security archive is expected beside it.

A flat repository, as NVIDIA's, has no suites: InRelease, index and packages lie in one folder.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from driverforge_build.discover import signature
from driverforge_build.discover.apt import release_file
from driverforge_build.discover.apt.release_file import Digest, ReleaseFile
from driverforge_build.discover.apt.stanzas import add_stanzas, read_stanzas
from driverforge_build.discover.machine import Machine
from driverforge_build.discover.offered import AUTOMATIC, ON_REQUEST, PackageIndex
from driverforge_build.discover.partial import PartialCopy
from driverforge_build.discover.publishedkey import PublishedKey, published_key, with_published
from driverforge_build.discover.settings import Nowhere, Settings
from driverforge_build.lock.pins import LockedRepository
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.model import OsRow
from driverforge_build.matrix.repository import Repository
from driverforge_build.nvidia.site import mirrored
from driverforge_build.ports import Blob, Downloads, LastRead, Listed, sha256_sum
from driverforge_core.errors import Unavailable, UsageError
from driverforge_core.osid import OsId
from driverforge_oci.transport import without_secrets

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
PORTS = {"ubuntu": "ubuntu-ports"}
"""Ubuntu's archive has amd64; its other architectures, with all pockets, are in an archive of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a suite is: its archive's address, with no / at the end, and the keys that may have signed it:
    of files, and of a flat repository the one that it publishes itself.
    """

    repository: Repository
    uri: str
    keyrings: tuple[Path, ...]
    key: PublishedKey | None = None

    @property
    def folder(self) -> str:
        return self.uri if self.repository.flat else f"{self.uri}/dists/{self.repository.id}"

    @property
    def components(self) -> tuple[str, ...]:
        """Those that have an index each; a flat repository has the one of ''."""
        return self.repository.components or ("",)

    @property
    def id(self) -> str:
        return self.repository.id

    def address(self, downloads: Downloads) -> str:
        return self.uri

    def address_of(self, path: str) -> str:
        return f"{self.uri}/{path}"

    def read(self, downloads: Downloads, settings: Settings) -> Suite:
        return read_suite(downloads, self, now=settings.now, accept_expired=settings.accept_expired)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite whose signature is verified.

    `inrelease` is the sha256 of the signed file, `size` its bytes, `last_read` when its mirror last said so.
    """

    location: Location
    release: ReleaseFile
    fingerprints: tuple[str, ...]
    inrelease: str
    size: int
    last_read: LastRead

    @property
    def id(self) -> str:
        return self.location.id

    def address(self, path: str) -> str:
        return self.location.address_of(path)

    def locked(self, arch: Arch, downloads: Downloads) -> LockedRepository:
        indexes = [self.release.index(component, arch) for component in self.location.components]
        return LockedRepository(
            suite=self.location.repository.id,
            components=self.location.repository.components,
            date=release_file.iso(self.release.date),
            valid_until=release_file.iso(self.release.valid_until),
            signed_by=self.fingerprints,
            inrelease=self.inrelease,
            indexes={path: digest.sha256 for path, digest in filter(None, indexes)},
        )

    def add_packages(self, index: PackageIndex, arch: Arch, downloads: Downloads) -> None:
        read_packages(downloads, self, arch, index)

    def partial_copy(self, row: OsRow, arch: Arch, url: str) -> PartialCopy:
        location, index = self.location, dict[str, Listed]()
        path = f"dists/{self.id}/" if location.components != ("",) else ""
        for component in location.components:
            if found := self.release.index(component, arch):
                index[path + found[0]] = _index_blob(self, *found).listed
        signed = Listed(
            urls=(f"{location.folder}/InRelease",), sum=sha256_sum(self.inrelease), size=self.size
        )
        name = without_secrets(location.uri).partition("?")[0].rpartition("/")[2]
        folder = name if _FOLDER.fullmatch(name) else self.id
        return PartialCopy(
            folder=folder,
            index={**index, f"{path}InRelease": signed},
            definition=self._definition(row, arch, f"{url}/{folder}"),
        )

    def _definition(self, row: OsRow, arch: Arch, url: str) -> str:
        """A line of sources.list(5)."""
        # a package of an image may have apt ask for further indexes (appstream does), which are not here
        options = [f"arch={arch}", "target=Packages", "by-hash=no"]
        options += [f"signed-by={row.keyring}"] if row.keyring else []
        # a copy stands still; what it has was in time when it was made
        options += ["check-valid-until=no"] if self.release.valid_until else []
        flat = self.location.repository.flat
        components = "/" if flat else " ".join((self.id, *self.location.repository.components))
        return f"deb [{' '.join(options)}] {url} {components}\n"


def locate(row: OsRow, arch: Arch, settings: Settings) -> list[Location]:
    """Where the suites of an OS are.

    Raises Nowhere where nothing says where one is.
    """
    return [_location(row, arch, repository, settings) for repository in row.repositories]


def _location(row: OsRow, arch: Arch, repository: Repository, settings: Settings) -> Location:
    if repository.flat:
        return _flat_location(row, arch, repository, settings)
    machine = settings.machine
    source = machine.find(
        OsId.parse(row.id).id, row.codename, repository.id, repository.components[0], arch=arch
    )
    # what only a neighbour of this machine's archive would have, its configuration does not name
    if source is not None and source.uri != _neighbour(source.uri, _archive(repository, arch)):
        source = None
    given = settings.mirrors.get(f"{row.id}-{arch}") or settings.mirrors.get(row.id) or row.mirror or ""
    exact = settings.mirrors.get(f"{row.id}-{arch}/{repository.id}") or settings.mirrors.get(
        f"{row.id}/{repository.id}"
    )
    known = source.uri if source else next(iter(repository.addresses(row.releasever or "")), "")
    uri = exact or (_beside(given, row, repository, arch) if given else known)
    if not uri:
        raise _nowhere(row, arch, repository, machine)
    own = [Path(row.keyring)] if row.keyring and Path(row.keyring).is_file() else []
    keys = (
        settings.keys_of(row.id)
        or (source.signed_by if source else ())
        or tuple(own)
        or (machine.trusted if source else ())
    )
    if not keys:
        raise Nowhere(
            f"{row.id}: nothing says who may sign its suite {repository.id}",
            details=[f"{row.keyring or 'no keyring'} is not on this machine"],
            resolution=f"give the distribution's public keys: --keyring {row.id}=FILE",
        )
    return Location(repository=repository, uri=uri.rstrip("/"), keyrings=keys)


def _flat_location(row: OsRow, arch: Arch, repository: Repository, settings: Settings) -> Location:
    """A repository of a vendor's own: an OS's mirror has no copy of it, one of NVIDIA's may have."""
    exact = settings.mirrors.get(f"{row.id}-{arch}/{repository.id}") or settings.mirrors.get(
        f"{row.id}/{repository.id}"
    )
    own = Path(repository.keyring or row.keyring)
    keys = (own,) if repository.keyring and own.is_file() else settings.keys_of(row.id)
    uri = exact or mirrored(repository.urls[0], settings.mirrors)
    key = published_key(repository)
    return Location(repository=repository, uri=uri.rstrip("/"), keyrings=keys, key=key)


def _unsigned(location: Location) -> Nowhere:
    return Nowhere(
        f"nothing says who may sign the repository {location.id}",
        details=[f"{location.repository.keyring or 'no keyring of its own'} is not on this machine"],
        resolution="install the package that has its keys (NVIDIA's: cuda-keyring), or give them: --keyring "
        "FILE, and the distribution's with another --keyring; or name another file with `keyring:` of the "
        "repository",
    )


def _nowhere(row: OsRow, arch: Arch, repository: Repository, machine: Machine) -> Nowhere:
    distribution, archive = OsId.parse(row.id).id, _archive(repository, arch)
    key = f"{row.id}-{arch}" if archive != repository.archive else row.id
    known = f"{machine.id or 'no apt system'} {machine.codename}".rstrip()
    return Nowhere(
        f"{row.id}-{arch}: nothing says where its suite {repository.id} is",
        details=[f"this machine's apt configuration is for {known}"],
        resolution=f"give the address of a mirror: --mirror {key}=http://MIRROR/"
        f"{archive if archive != repository.archive else distribution}",
    )


def _archive(repository: Repository, arch: Arch) -> str:
    """The archive that holds a suite's packages for an architecture."""
    return PORTS.get(repository.archive, repository.archive) if arch != "amd64" else repository.archive


def _beside(given: str, row: OsRow, repository: Repository, arch: Arch) -> str:
    """The archive of a suite, where `given` is the main one."""
    main = next((one.archive for one in row.repositories if one.role == "main"), "")
    if repository.archive in ("", main):
        return _neighbour(given.rstrip("/"), _archive(repository, arch))
    return _renamed(given, _archive(repository, arch))


def _renamed(address: str, archive: str) -> str:
    """The archive beside another one: http://mirror/debian -> http://mirror/debian-security."""
    return f"{address.rstrip('/').rpartition('/')[0]}/{archive}"


def _neighbour(address: str, archive: str) -> str:
    """The archive of the same mirror for another architecture: http://mirror/ubuntu -> .../ubuntu-ports.

    An address that ends in a name of its own is taken to have all architectures.
    """
    name = address.rpartition("/")[2]
    return _renamed(address, archive) if name in (*PORTS, *PORTS.values()) else address


def read_suite(
    downloads: Downloads, location: Location, *, now: datetime, accept_expired: bool = False
) -> Suite:
    """Fetch and verify a suite's InRelease. `now` is UTC and aware.

    Raises TemporaryFailure, NotThere, Untrusted, Nowhere, or Unavailable where it is too old.
    """
    name = f"InRelease of {location.repository.id}"
    found = downloads.dated_document(f"{location.folder}/InRelease")
    signed = found.body
    with with_published(downloads, location.address_of, location.keyrings, location.key) as keys:
        if not keys:
            raise _unsigned(location)
        verified = signature.verify(signed, keys, name=name)
    parsed = release_file.parse(verified.text, name=name)
    if not (location.repository.flat or _is(parsed, location.repository.id)):
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
        size=len(signed),
        last_read=found.last_read,
    )


def _is(release: ReleaseFile, suite: str) -> bool:
    """Whether a Release is the one of a suite.

    By its code name alone Ubuntu's noble-updates is noble too, so that its Suite has to deny being a pocket:
    Debian's says oldstable.
    """
    pocket = release.suite.startswith(f"{release.codename}-")
    return suite == release.suite or (suite == release.codename and not pocket)


def read_packages(downloads: Downloads, suite: Suite, arch: Arch, package_index: PackageIndex) -> None:
    """Add a suite's packages to an index of them: each component's index, fetched by its hash."""
    location = suite.location
    for component in location.components:
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
        index = downloads.blob(_index_blob(suite, *found))
        # a vendor's packages are for those who ask for them: a distribution may have some of the same names.
        # The row counts beside the suite's own word: aptly and reprepro leave NotAutomatic out of what they
        # publish unless they are told
        own = location.repository
        normal = suite.release.automatic and not (own.flat or own.on_request)
        preference = AUTOMATIC if normal else ON_REQUEST
        add_stanzas(
            package_index,
            read_stanzas(index, found[0].rpartition("/")[2].removeprefix("Packages")),
            suite=location.repository.id,
            preference=preference,
        )


def _index_blob(suite: Suite, path: str, digest: Digest) -> Blob:
    """A component's index, by its hash where the suite has it so."""
    plain = f"{suite.location.folder}/{path}"
    by_hash = f"{plain.rpartition('/')[0]}/by-hash/SHA256/{digest.sha256}"
    urls = (by_hash, plain) if suite.release.by_hash else (plain,)
    return Blob(urls=urls, sha256=digest.sha256, size=digest.size)
