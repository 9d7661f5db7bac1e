"""Where the repositories of an RPM system are.

An address comes from --mirror, from the OS's row, or from this machine's own .repo files, in this order. No
address is built in. An address for a whole OS is completed by the `path:` of each repository's row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from driverforge_build.discover.repofiles import RepoFile
from driverforge_build.discover.rpm.repomd import RpmRepository, read_repository
from driverforge_build.discover.settings import Nowhere, Settings
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.model import OsRow, Repository
from driverforge_build.ports import ClientCertificate, Downloads
from driverforge_core.errors import Unavailable
from driverforge_core.osid import OsId
from driverforge_oci.transport import is_web_address, without_secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class RpmPlace:
    """Where a repository is: its address with no / at the end, or the address of a list of mirrors.

    `keyrings` may have signed it; `certificate` lets us in.
    """

    id: str
    uri: str
    mirrorlist: str = ""
    keyrings: tuple[Path, ...] = ()
    certificate: ClientCertificate | None = None

    def read(self, downloads: Downloads, settings: Settings) -> RpmRepository:
        if self.certificate is not None:
            downloads.identify(self.uri or self.mirrorlist, self.certificate)
        uri = self.uri or _first_mirror(downloads, self.mirrorlist)
        return read_repository(downloads, self.id, uri, self.keyrings)


def locate(row: OsRow, arch: Arch, settings: Settings) -> list[RpmPlace]:
    """Where the repositories of an OS are. Raises Nowhere where nothing says where one is.

    An optional one that nothing says a word about is left out.
    """
    places = [_place(row, arch, repository, settings) for repository in row.repositories]
    return [place for place in places if place is not None]


def _place(row: OsRow, arch: Arch, repository: Repository, settings: Settings) -> RpmPlace | None:
    own = _own(row, repository, settings)
    mirrors = settings.mirrors
    exact = mirrors.get(f"{row.id}-{arch}/{repository.id}") or mirrors.get(f"{row.id}/{repository.id}", "")
    given = mirrors.get(f"{row.id}-{arch}") or mirrors.get(row.id) or row.mirror or ""
    uri = exact or (f"{given.rstrip('/')}/{repository.path or repository.id}" if given else "")
    if not uri and own is not None:
        uri = own.on(own.uri, arch)
    mirrorlist = own.on(own.mirrorlist, arch) if own is not None and not uri else ""
    if not (uri or mirrorlist):
        if repository.optional:
            return None
        raise _nowhere(row, arch, repository)
    keyring = Path(row.keyring)
    keys = (own.keys if own is not None else ()) or ((keyring,) if row.keyring and keyring.is_file() else ())
    return RpmPlace(
        id=repository.id,
        uri=uri.rstrip("/"),
        mirrorlist=mirrorlist,
        keyrings=settings.keyrings or keys,
        certificate=own.certificate if own is not None else None,
    )


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
        resolution=f"give the address of a mirror: --mirror {row.id}=https://MIRROR/ADDRESS"
        + (f", below which {repository.path} is" if repository.path else ""),
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
