"""Where the repositories of an RPM system are.

An address comes from --mirror, from the OS's row, from this machine's own .repo files, or from the
repository's row, in this order. One for a whole OS stands for the folder that the rows' addresses share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from urllib.parse import urlsplit

from driverforge_build.discover.entitlement import SCC, logged_in
from driverforge_build.discover.offered import AUTOMATIC, ON_REQUEST
from driverforge_build.discover.publishedkey import PublishedKey, published_key
from driverforge_build.discover.repofiles import RepoFile
from driverforge_build.discover.rpm.repomd import RpmRepository, read_repository
from driverforge_build.discover.settings import Nowhere, Settings
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.model import OsRow
from driverforge_build.matrix.repository import Repository
from driverforge_build.nvidia.site import mirrored
from driverforge_build.ports import ClientCertificate, Downloads, NotThere, Refused
from driverforge_core.arch import to_machine
from driverforge_core.errors import Unavailable
from driverforge_core.osid import OsId
from driverforge_oci.transport import is_web_address, without_secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class RpmPlace:
    """Where a repository is: its address with no / at the end, or the address of a list of mirrors.

    `keyrings`, and its own `key`, may have signed it, where its index `must_be_signed`; `certificate` lets us
    in. `preference` is AUTOMATIC or ON_REQUEST. `streams`: of its module streams only the default ones count.
    `guessed`: a mirror of the whole OS may have it, in a folder of its name, and need not.
    """

    id: str
    uri: str
    mirrorlist: str = ""
    keyrings: tuple[Path, ...] = ()
    must_be_signed: bool = True
    certificate: ClientCertificate | None = None
    preference: int = AUTOMATIC
    key: PublishedKey | None = None
    streams: bool = True
    guessed: bool = False

    def address(self, downloads: Downloads) -> str:
        if self.certificate is not None:
            downloads.identify(self.uri or self.mirrorlist, self.certificate)
        return self.uri or _first_mirror(downloads, self.mirrorlist)

    def read(self, downloads: Downloads, settings: Settings) -> RpmRepository:
        try:
            uri = self.address(downloads)
            found = read_repository(
                downloads,
                self.id,
                uri,
                keyrings=self.keyrings,
                must_be_signed=self.must_be_signed,
                key=self.key,
            )
            parts = {kind: part for kind, part in found.parts.items() if self.streams or kind != "modules"}
            return replace(found, preference=self.preference, parts=parts)
        except NotThere as error:
            if not self.guessed:
                raise
            raise Nowhere(error.brief, details=error.details, resolution=error.resolution) from error
        except Refused as error:
            raise Nowhere(
                f"a subscription is needed for the repository {self.id}: {error.brief}",
                details=error.details,
                resolution="check that the subscription has not ended and covers this repository"
                if self.certificate
                else "give a login in the address given with --mirror, or a certificate: --entitlement DIR",
            ) from error


def locate(row: OsRow, arch: Arch, settings: Settings) -> list[RpmPlace]:
    """Where the repositories of an OS are. Raises Nowhere where nothing says where one is.

    Further ones of which that is so are left out, and those that nothing lets us into.
    """
    return [
        place
        for repository in row.repositories
        if (place := _place(row, arch, repository, settings)) is not None
    ]


def locate_entitled(row: OsRow, arch: Arch, settings: Settings) -> list[RpmPlace]:
    """Where those of a subscription are that something lets us into."""
    places = (
        _place(row, arch, repository, settings) for repository in row.repositories if repository.entitled
    )
    return [place for place in places if place is not None]


def _place(row: OsRow, arch: Arch, repository: Repository, settings: Settings) -> RpmPlace | None:
    own = _own(row, repository, settings)
    exact = _exact(row, arch, repository, settings)
    given = exact or _on_mirror(row, arch, repository, settings)
    certificate = (own.certificate if own else None) or settings.entitlement if repository.entitled else None
    opened = certificate if row.package_manager == "dnf" else settings.logins.get(SCC)
    uri, mirrorlist = given, ""
    if not uri and own is not None:
        uri, mirrorlist = own.on(own.uri, arch), own.on(own.mirrorlist, arch)
    if not (uri or mirrorlist) and (opened or not repository.entitled):
        uri = mirrored(next(iter(repository.addresses(row.releasever or "")), ""), settings.mirrors)
        mirrorlist = (repository.mirrorlist or "").replace("{releasever}", row.releasever or "")
    uri = logged_in(uri, settings.logins, entitled=repository.entitled) or ""
    if not (uri or mirrorlist):
        if repository.optional or repository.role == "extra" or repository.entitled:
            return None
        raise _nowhere(row, arch, repository)
    keyring = repository.keyring or row.keyring
    keys = (own.keys if own else ()) or ((Path(keyring),) if keyring and Path(keyring).is_file() else ())
    return RpmPlace(
        id=repository.id,
        uri=uri.rstrip("/"),
        mirrorlist="" if uri else mirrorlist,
        keyrings=settings.keys_of(row.id) or keys,
        key=published_key(repository),
        streams=not repository.vendors,
        must_be_signed=repository.signed == "index",
        certificate=certificate,
        preference=ON_REQUEST if repository.on_request else AUTOMATIC,
        guessed=bool(given) and not exact and repository.entitled and repository.optional,
    )


def _exact(row: OsRow, arch: Arch, repository: Repository, settings: Settings) -> str:
    """The address that a user gives for this repository, '' where none does."""
    names = (f"{row.id}-{arch}/{repository.id}", f"{row.id}/{repository.id}")
    return next((settings.mirrors[name] for name in names if settings.mirrors.get(name)), "")


def _on_mirror(row: OsRow, arch: Arch, repository: Repository, settings: Settings) -> str:
    """The address on a mirror that a user or the OS's row gives for the whole OS, '' where none does."""
    mirrors = settings.mirrors
    mirror = mirrors.get(f"{row.id}-{arch}") or mirrors.get(row.id) or row.mirror
    address = next(iter(repository.addresses(row.releasever or "")), "")
    shared = _shared(row, arch)
    if not mirror or (address and not address.startswith(shared)):
        return ""
    # a copy that reposync made has a folder of that name
    return f"{mirror.rstrip('/')}/{address.removeprefix(shared) or repository.id}"


def _shared(row: OsRow, arch: Arch) -> str:
    """The folder that the addresses of an OS's repositories have in common, above that of a machine.

    Those of another host than the first one's (those of a subscription) do not count, nor a vendor's.
    """
    addresses = [
        address
        for repository in row.repositories
        if not repository.vendors
        for address in repository.addresses(row.releasever or "")[:1]
    ]
    host = urlsplit(addresses[0]).netloc if addresses else ""
    alike = [address for address in addresses if urlsplit(address).netloc == host]
    # whole folders; an OS with one repository shares what is above its machine's
    folders = [address.partition(f"/{to_machine(arch)}/")[0].split("/") for address in alike]
    shared = takewhile(lambda names: len(set(names)) == 1, zip(*folders, strict=False))
    return "".join(f"{name}/" for name, *_ in shared)


def _own(row: OsRow, repository: Repository, settings: Settings) -> RepoFile | None:
    """This machine's own file for a repository, if it runs the very OS: ids are the same in all releases."""
    machine, wanted = settings.machine, OsId.parse(row.id)
    major = machine.version.partition(".")[0]
    if machine.id != wanted.id or wanted.version not in (machine.version, major):
        return None
    return next((one for one in machine.repositories if one.id == repository.id), None)


def _nowhere(row: OsRow, arch: Arch, repository: Repository) -> Nowhere:
    return Nowhere(
        f"{row.id}-{arch}: nothing says where its repository {repository.id} is",
        details=["this machine's own repositories have none of that id"],
        resolution=f"give its address: --mirror {row.id}/{repository.id}=https://MIRROR/ADDRESS",
    )


def _first_mirror(downloads: Downloads, mirrorlist: str) -> str:
    text = downloads.document(mirrorlist).decode(errors="replace")
    found = next((line.strip() for line in text.splitlines() if is_web_address(line.strip())), "")
    if not found:
        raise Unavailable(
            "a list of mirrors names none",
            details=[without_secrets(mirrorlist)],
            resolution="name a mirror yourself with --mirror",
        )
    return found.rstrip("/")
