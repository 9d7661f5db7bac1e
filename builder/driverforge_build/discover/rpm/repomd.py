"""repomd.xml of an RPM repository: what it consists of, and how it is trusted.

Signed where the distribution signs it (SUSE, NVIDIA), by repomd.xml.asc beside it. Red Hat and Oracle sign
their packages alone: then the bytes have to come by TLS or from a file, and the lock says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from xml.etree import ElementTree as ET

from driverforge_build.discover import signature
from driverforge_build.discover.offered import AUTOMATIC, PackageIndex
from driverforge_build.discover.partial import PartialCopy
from driverforge_build.discover.publishedkey import PublishedKey, optional_document, with_published
from driverforge_build.discover.rpm.entries import add_records
from driverforge_build.discover.rpm.primary import (
    OF_OTHER_SUMS,
    PATH,
    SUMS,
    UNREADABLE,
    OtherSums,
    named_sum,
    read_primary,
    safe_parser,
)
from driverforge_build.discover.rpm.streams import hidden_packages
from driverforge_build.discover.settings import Nowhere
from driverforge_build.discover.signature import Untrusted
from driverforge_build.lock import sound
from driverforge_build.lock.pins import LockedRepository
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.model import OsRow
from driverforge_build.packed import SUFFIXES
from driverforge_build.ports import Blob, Downloads, LastRead, Listed, Sum, sha256_sum
from driverforge_core.arch import to_machine
from driverforge_core.errors import InputError
from driverforge_oci.transport import without_secrets

_NAMESPACE = "{http://linux.duke.edu/metadata/repo}"
_READ = ("primary", "modules")
_NOT_CARRIED = ("_db", "_zck", "other")
"""Parts that neither dnf nor zypper asks for: the same in another form, and change logs."""
_UNREADABLE: tuple[type[Exception], ...] = (
    *UNREADABLE,
    ET.ParseError,
    AttributeError,
    LookupError,
    OverflowError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One file that repomd.xml names: its path below the repository's address."""

    path: str
    sum: Sum
    size: int

    @property
    def suffix(self) -> str:
        name = self.path.rpartition("/")[2]
        return next((end for end in SUFFIXES if name.endswith(end)), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RpmRepository:
    """A repository whose repomd.xml is trusted. `document` is its sha256, `preference` AUTOMATIC or
    ON_REQUEST. `index` is all that dnf and zypper may read of it, by path, repomd.xml last. `last_read` is
    when its server last said so.
    """

    id: str
    uri: str
    document: str
    date: datetime | None
    fingerprints: tuple[str, ...]
    parts: dict[str, Part]
    index: dict[str, Part]
    last_read: LastRead
    preference: int = AUTOMATIC

    def address(self, path: str) -> str:
        return below(self.uri, path)

    def locked(self, arch: Arch, downloads: Downloads) -> LockedRepository:
        return LockedRepository(
            suite=self.id,
            components=(),
            date=self.date.strftime("%Y-%m-%dT%H:%M:%SZ") if self.date else "",
            valid_until="",
            signed_by=self.fingerprints,
            inrelease=self.document,
            indexes={part.path: self._blob(part, downloads).sha256 for part in self.parts.values()},
        )

    def partial_copy(self, row: OsRow, arch: Arch, url: str) -> PartialCopy:
        signed = [f"gpgkey=file://{row.keyring}"] if row.keyring else []
        settings = {
            "name": self.id,
            "baseurl": f"{url}/{self.id}",
            "enabled": 1,
            "gpgcheck": 1,
            "repo_gpgcheck": int(bool(self.fingerprints)),
        }
        lines = [f"[{self.id}]", *(f"{key}={value}" for key, value in settings.items()), *signed]
        return PartialCopy(
            folder=self.id,
            index={path: self._listed(part) for path, part in self.index.items()},
            definition="\n".join(lines) + "\n",
        )

    def add_packages(self, index: PackageIndex, arch: Arch, downloads: Downloads) -> None:
        """Add its packages, without those of module streams that are not enabled unless somebody asks.

        A vendor's streams are its driver's branches: what an image has of them, the row's versions say.
        """
        modules = self.parts.get("modules")
        hidden = hidden_packages(self._file(modules, downloads), modules.suffix) if modules else frozenset()
        primary = self.parts["primary"]
        records = read_primary(
            self._file(primary, downloads), primary.suffix, archs=frozenset((to_machine(arch), "noarch"))
        )
        add_records(index, records, repository=self.id, hidden=hidden, preference=self.preference)

    def _file(self, part: Part, downloads: Downloads) -> Path:
        return downloads.blob(self._blob(part, downloads))

    def _blob(self, part: Part, downloads: Downloads) -> Blob:
        return downloads.pinned(self._listed(part))

    def _listed(self, part: Part) -> Listed:
        return Listed(urls=(self.address(part.path),), sum=part.sum, size=part.size)


def below(uri: str, path: str) -> str:
    """An address below a repository's, which may end in a subscriber's token: https://…/product?TOKEN."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}"))


def read_repository(
    downloads: Downloads,
    name: str,
    uri: str,
    *,
    keyrings: tuple[Path, ...],
    must_be_signed: bool,
    key: PublishedKey | None = None,
) -> RpmRepository:
    """Fetch and trust a repository's repomd.xml.

    A signature that is there counts where there are keys for it; without one, or without keys, the bytes have
    to come safely, unless the index `must_be_signed`. Raises TemporaryFailure, NotThere, Untrusted, Nowhere.
    """
    found = downloads.dated_document(below(uri, "repodata/repomd.xml"))
    document = found.body
    what = f"repomd.xml of {name}"
    apart = optional_document(downloads, below(uri, "repodata/repomd.xml.asc"))
    if must_be_signed and apart is None:
        raise Untrusted(
            f"{what} is not signed, and its distribution signs it",
            details=[without_secrets(uri)],
            resolution="use another mirror; if it is a copy of your own without repomd.xml.asc: "
            "`signed: packages` in the repository's row",
        )
    fingerprints: tuple[str, ...] = ()
    with with_published(downloads, partial(below, uri), keyrings, key) as keys:
        if apart is not None and keys:
            fingerprints = signature.verify_detached(document, apart, keys, name=what)
    if must_be_signed and not fingerprints:
        raise Nowhere(
            f"nothing says who may sign {what}",
            resolution="give the distribution's public keys: --keyring FILE",
        )
    if not fingerprints:
        _came_safely(uri, what)
    date, parts = parse_repomd(document, name=what)
    signed = {"repodata/repomd.xml.asc": apart, "repodata/repomd.xml": document}
    index = [part for kind, part in parts.items() if not kind.endswith(_NOT_CARRIED)]
    index += [_whole(path, data) for path, data in signed.items() if data is not None]
    return RpmRepository(
        id=name,
        uri=uri,
        document=hashlib.sha256(document).hexdigest(),
        date=date,
        fingerprints=fingerprints,
        parts={kind: parts[kind] for kind in _READ if kind in parts},
        index={part.path: part for part in index},
        last_read=found.last_read,
    )


def _came_safely(uri: str, what: str) -> None:
    if not uri.startswith(("https://", "file://")):
        raise Untrusted(
            f"nobody vouches for {what}: it came by plain http, and anybody on the way could have changed it",
            details=[without_secrets(uri)],
            resolution="give an https:// address of this repository with --mirror; where it has a "
            "repomd.xml.asc, its public keys do as well: --keyring FILE",
        )


def parse_repomd(document: bytes, *, name: str) -> tuple[datetime | None, dict[str, Part]]:
    """When a repository was made, and its parts. Raises InputError."""
    try:
        parts: dict[str, Part] = {}
        stamps = []
        for element in _data(document):
            stamps.append(float(element.findtext(f"{_NAMESPACE}timestamp") or 0))
            kind = element.get("type", "")
            if kind in _READ or _is_plain(element):
                parts[kind] = _part(element)
        if "primary" not in parts:
            raise ValueError("it names no primary index")
        newest = max(stamps, default=0)
        return datetime.fromtimestamp(newest, timezone.utc) if newest else None, parts
    except _UNREADABLE as error:
        raise InputError(
            f"cannot read {name}: {error}",
            resolution=OF_OTHER_SUMS
            if isinstance(error, OtherSums)
            else "check the address given with --mirror: a repository has repodata/repomd.xml",
        ) from error


def _data(document: bytes) -> Iterator[ET.Element]:
    # a first reading refuses entities, which ElementTree would expand
    safe_parser().Parse(document, True)
    return ET.fromstring(document).iter(f"{_NAMESPACE}data")  # noqa: S314


def _whole(path: str, data: bytes) -> Part:
    return Part(path=path, sum=sha256_sum(hashlib.sha256(data).hexdigest()), size=len(data))


def _is_plain(element: ET.Element) -> bool:
    """Whether a part that is not read here has what a copy of it needs."""
    checksum = element.find(f"{_NAMESPACE}checksum")
    return checksum is not None and checksum.get("type") in SUMS and bool(element.get("type"))


def _part(element: ET.Element) -> Part:
    location, checksum = element.find(f"{_NAMESPACE}location"), element.find(f"{_NAMESPACE}checksum")
    if location is None or checksum is None:
        raise ValueError("a part of it has no place or no sum")
    path = location.attrib["href"]
    known = named_sum(path.rpartition("/")[2][:40], checksum.get("type", ""), checksum.text or "")
    if not PATH.fullmatch(path) or ".." in path.split("/"):
        raise ValueError(f"{path!r} does not lie below the repository's address")
    return Part(
        path=path,
        sum=known,
        size=sound.size(path, int(element.findtext(f"{_NAMESPACE}size") or "")),
    )
