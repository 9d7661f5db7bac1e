"""Packages of primary.xml as the index has them, in rpm's order of versions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any

from driverforge_build.discover.packages import AUTOMATIC, Package, PackageIndex, Requirement
from driverforge_build.discover.rpm.primary import Record
from driverforge_build.discover.rpm.rich import parse_rich
from driverforge_core import rpmversion

_version_key = lru_cache(maxsize=65536)(rpmversion.key)
# Base images have these small variants, beside which what they stand for cannot be installed.
_SMALL = ("coreutils-single", "curl-minimal", "libcurl-minimal", "glibc-minimal-langpack", "gnupg2-minimal")


class RpmOrder:
    """rpm-version(7). What says no release is not compared by its release."""

    def key(self, version: str) -> Any:
        return _version_key(version)

    def compare(self, offered: str, wanted: str) -> int:
        if "-" not in wanted or "-" not in offered:
            offered, wanted = offered.partition("-")[0], wanted.partition("-")[0]
        return rpmversion.compare(offered, wanted)


def new_index() -> PackageIndex:
    return PackageIndex(RpmOrder())


def add_records(
    index: PackageIndex,
    records: Iterable[Record],
    *,
    repository: str,
    hidden: frozenset[str] = frozenset(),
    preference: int = AUTOMATIC,
) -> None:
    """Take in a repository's packages but the `hidden` ones, 'name-[epoch:]version-release.arch'."""
    for record in records:
        if f"{record.name}-{record.version}.{record.arch}" in hidden:
            continue
        names = {offer.name for offer in record.provides} - {record.name}
        index.add(record.name, partial(_package, record, repository, preference), (*names, *record.files))


def _package(record: Record, repository: str, preference: int) -> Package:
    rich = [parse_rich(text) for text in record.rich]
    # a package may need what it provides itself, and its own configuration files
    own = {offer.name for offer in record.provides}
    needed = [one for one in dict.fromkeys(record.requires) if one.name not in own]
    return Package(
        name=record.name,
        version=record.version,
        arch=record.arch,
        source=record.source,
        priority=0 if record.name in _SMALL else 3,
        essential=False,
        depends=(*((one,) for one in needed), *(clause for clauses, _ in rich for clause in clauses)),
        provides=(*record.provides, *(Requirement(name=path) for path in record.files)),
        path=record.path,
        sum=record.sum,
        size=record.size,
        suite=repository,
        preference=preference,
        conditions=tuple(one for _, conditions in rich for one in conditions),
    )
