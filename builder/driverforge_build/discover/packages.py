"""What the suites of a repository offer: Packages indexes in memory.

A stanza is parsed when somebody asks for it. Splitting an index of 63,000 stanzas and looking for names and
Provides takes 0.2 s; parsing all of it takes five times that.
"""

from __future__ import annotations

import gzip
import lzma
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, cast

from driverforge_core import deb822, debversion
from driverforge_core.errors import InputError

INDEX_LIMIT = 512 << 20
"""Bytes, unpacked. The index of all of Debian 12's main has 50 MB."""
_CHUNK = 1 << 20
_NAME = re.compile(rb"^Package:[ \t]*(\S+)", re.MULTILINE)
_PROVIDES = re.compile(rb"^Provides:[ \t]*(.+)", re.MULTILINE)
_CLAUSE = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9+._-]*)(?::[a-z0-9-]+)?\s*"
    r"(?:\(\s*(?P<relation><<|<=|=|>=|>>)\s*(?P<version>[^\s)]+)\s*\))?"
)
_PRIORITIES = {"required": 0, "important": 1, "standard": 2, "optional": 3, "extra": 4}
_COMPARISONS: dict[str, Callable[[int], bool]] = {
    "<<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    "=": lambda order: order == 0,
    ">=": lambda order: order >= 0,
    ">>": lambda order: order > 0,
}

version_key = lru_cache(maxsize=65536)(debversion.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One alternative of a dependency: a name, and a relation (<<, <=, =, >=, >> or '') to a version."""

    name: str
    relation: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.relation} {self.version})" if self.relation else self.name

    def admits(self, version: str) -> bool:
        """Whether a version stands in the relation."""
        if not self.relation:
            return True
        left, right = version_key(version), version_key(self.version)
        return _COMPARISONS[self.relation]((left > right) - (left < right))


Clause = tuple[Requirement, ...]
"""Alternatives, the preferred one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One stanza of a Packages index.

    `preference` orders suites: apt's 500 for a normal one, 100 where it is NotAutomatic.
    """

    name: str
    version: str
    arch: str
    source: str
    priority: int
    essential: bool
    depends: tuple[Clause, ...]
    provides: tuple[Requirement, ...]
    path: str
    sha256: str
    size: int
    suite: str
    preference: int

    @property
    def upstream(self) -> str:
        """The version without epoch and Debian revision: '535.261.03' of '535.261.03-1'."""
        return self.version.rpartition(":")[2].rpartition("-")[0] or self.version.rpartition(":")[2]


class PackageIndex:
    """The indexes of one OS and architecture, merged."""

    def __init__(self) -> None:
        self._stanzas: dict[str, list[tuple[bytes, str, int]]] = defaultdict(list)
        self._providers: dict[str, set[str]] = defaultdict(set)
        self._parsed: dict[str, tuple[Package, ...]] = {}

    def add(self, stanzas: Iterator[bytes], *, suite: str, preference: int = 500) -> None:
        """Take in one index. `stanzas` as `read_stanzas` yields them."""
        self._parsed.clear()
        for stanza in stanzas:
            if (found := _NAME.search(stanza)) is None:
                continue
            name = found[1].decode()
            self._stanzas[name].append((stanza, suite, preference))
            if b"\nProvides:" in stanza and (provides := _PROVIDES.search(stanza)) is not None:
                for requirement in parse_clause(provides[1].decode().replace(",", "|")):
                    self._providers[requirement.name].add(name)

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self._stanzas if name.startswith(prefix))

    def versions(self, name: str) -> tuple[Package, ...]:
        """All versions of a package in all suites, in the order in which apt would take them.

        That is by preference of the suite, then newest first.
        """
        if name not in self._parsed:
            packages = [_package(*stanza) for stanza in self._stanzas.get(name, ())]
            packages.sort(
                key=lambda package: (package.preference, version_key(package.version)), reverse=True
            )
            self._parsed[name] = tuple(packages)
        return self._parsed[name]

    def candidate(self, requirement: Requirement, *, upstream: str = "") -> Package | None:
        """The version of a real package that fits a requirement.

        One of that upstream version, else the one that apt would take, else the newest. None where no version
        fits.
        """
        fitting = [
            package for package in self.versions(requirement.name) if requirement.admits(package.version)
        ]
        same = [package for package in fitting if package.upstream == upstream]
        return next(iter((*same, *fitting)), None)

    def providers(self, requirement: Requirement, *, upstream: str = "") -> list[Package]:
        """Packages that provide a virtual one, best first: essential ones, then by Priority, then by name.

        A relation to a version is met by a versioned Provides only (Debian policy 7.5).
        """
        names = sorted(self._providers.get(requirement.name, ()))
        candidates = [self.candidate(Requirement(name=name), upstream=upstream) for name in names]
        fitting = [
            package for package in candidates if package is not None and provided(package, requirement)
        ]
        return sorted(fitting, key=lambda package: (not package.essential, package.priority, package.name))


def provided(package: Package, requirement: Requirement) -> bool:
    """Whether a package fulfils a requirement through its Provides."""
    return any(
        offer.name == requirement.name
        and (not requirement.relation or (offer.relation == "=" and requirement.admits(offer.version)))
        for offer in package.provides
    )


def read_stanzas(path: Path, suffix: str, *, limit: int = INDEX_LIMIT) -> Iterator[bytes]:
    """The stanzas of a Packages file, streamed; `suffix` (.xz, .gz or '') tells its compression.

    Raises InputError for one that is damaged, or unpacks to more than `limit` bytes.
    """
    rest, size = b"", 0
    try:
        with _opened(path, suffix) as file:
            while chunk := file.read(_CHUNK):
                size += len(chunk)
                if size > limit:
                    raise EOFError(f"it unpacks to more than {limit} bytes")
                *whole, rest = (rest + chunk).split(b"\n\n")
                yield from whole
    except (lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise InputError(
            f"cannot unpack the index {path}: {error}", resolution="remove the file and run the command again"
        ) from error
    if rest.strip():
        yield rest


def _opened(path: Path, suffix: str) -> IO[bytes]:
    if suffix == ".xz":
        return lzma.open(path)
    return cast(IO[bytes], gzip.open(path)) if suffix == ".gz" else path.open("rb")


def parse_clauses(text: str) -> tuple[Clause, ...]:
    """A dependency field: clauses between commas."""
    return tuple(parse_clause(clause) for clause in text.replace("\n", " ").split(",") if clause.strip())


def parse_clause(text: str) -> Clause:
    """Alternatives between bars."""
    alternatives = []
    for part in text.split("|"):
        if (found := _CLAUSE.fullmatch(part.strip())) is None:
            raise InputError(f"{part.strip()!r} is not a dependency", resolution="see deb-control(5)")
        alternatives.append(
            Requirement(name=found["name"], relation=found["relation"] or "", version=found["version"] or "")
        )
    return tuple(alternatives)


def _package(stanza: bytes, suite: str, preference: int) -> Package:
    fields = next(deb822.parse(stanza.decode("utf-8", errors="replace")))
    try:
        return Package(
            name=fields["Package"],
            version=fields["Version"],
            arch=fields["Architecture"],
            source=fields.get("Source", fields["Package"]).partition(" ")[0],
            priority=_PRIORITIES.get(fields.get("Priority", "optional"), 3),
            essential=fields.get("Essential", "no") == "yes",
            depends=parse_clauses(fields.get("Pre-Depends", "")) + parse_clauses(fields.get("Depends", "")),
            provides=tuple(clause[0] for clause in parse_clauses(fields.get("Provides", ""))),
            path=fields["Filename"],
            sha256=fields["SHA256"],
            size=int(fields["Size"]),
            suite=suite,
            preference=preference,
        )
    except (KeyError, ValueError) as error:
        raise InputError(
            f"the index of {suite} has an incomplete stanza: {error}",
            details=[str(fields.get("Package"))],
            resolution="use another mirror: this one's index is signed, and not what apt would read",
        ) from None
