"""Packages indexes: stanzas, and what their dependency fields mean (deb-control(5))."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path

from driverforge_build.discover.offered import AUTOMATIC, Clause, Package, PackageIndex, Requirement
from driverforge_build.packed import DAMAGED, unpacked
from driverforge_build.ports import sha256_sum
from driverforge_core import deb822, debversion
from driverforge_core.errors import InputError

INDEX_LIMIT = 512 << 20
"""Bytes, unpacked. The index of all of Debian 12's main has 50 MB."""
_STANZA_LIMIT = 8 << 20
"""Bytes. The longest of Debian 12's main has 0.08 MB; a long one is joined once for each chunk."""
_CHUNK = 1 << 20
_NAME = re.compile(rb"^Package:[ \t]*(\S+)", re.MULTILINE)
_PROVIDES = re.compile(rb"^Provides:[ \t]*(.+)", re.MULTILINE)
_CLAUSE = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9+._-]*)(?::[a-z0-9-]+)?\s*"
    r"(?:\(\s*(?P<relation><<|<=|=|>=|>>)\s*(?P<version>[^\s)]+)\s*\))?"
)
_PRIORITIES = {"required": 0, "important": 1, "standard": 2, "optional": 3, "extra": 4}

version_key = lru_cache(maxsize=65536)(debversion.key)


class DebianOrder:
    """deb-version(7)."""

    def key(self, version: str) -> debversion.Key:
        return version_key(version)

    def compare(self, offered: str, wanted: str) -> int:
        left, right = version_key(offered), version_key(wanted)
        return (left > right) - (left < right)


def new_index() -> PackageIndex:
    return PackageIndex(DebianOrder())


def add_stanzas(
    index: PackageIndex, stanzas: Iterable[bytes], *, suite: str, preference: int = AUTOMATIC
) -> None:
    """Take in one Packages file. `stanzas` as `read_stanzas` yields them.

    Splitting an index of 63,000 stanzas and looking for names and Provides takes 0.2 s; parsing all of it
    takes five times that.
    """
    for stanza in stanzas:
        if (found := _NAME.search(stanza)) is None:
            continue
        provides: Clause = ()
        if b"\nProvides:" in stanza and (said := _PROVIDES.search(stanza)) is not None:
            provides = parse_clause(said[1].decode(errors="replace").replace(",", "|"))
        make = partial(_package, stanza, suite, preference)
        index.add(found[1].decode(errors="replace"), make, (offer.name for offer in provides))


def read_stanzas(path: Path, suffix: str, *, limit: int = INDEX_LIMIT) -> Iterator[bytes]:
    """The stanzas of a Packages file, streamed; `suffix` (.xz, .gz or '') tells its compression.

    Raises InputError for one that is damaged, unpacks to more than `limit` bytes, or has a stanza that no
    package has.
    """
    rest, size = b"", 0
    try:
        with path.open("rb") as packed:
            file = unpacked(packed, suffix)
            while chunk := file.read(_CHUNK):
                size += len(chunk)
                if size > limit:
                    raise EOFError(f"it unpacks to more than {limit} bytes")
                *whole, rest = (rest + chunk).split(b"\n\n")
                yield from whole
                if len(rest) > _STANZA_LIMIT:
                    raise EOFError(f"a stanza has more than {_STANZA_LIMIT} bytes")
    except DAMAGED as error:
        raise InputError(
            f"cannot unpack the index {path}: {error}", resolution="remove the file and run the command again"
        ) from error
    if rest.strip():
        yield rest


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
            # a flat repository's
            path=fields["Filename"].removeprefix("./"),
            sum=sha256_sum(fields["SHA256"]),
            size=int(fields["Size"]),
            suite=suite,
            preference=preference,
            # KiB, deb-control(5)
            installed=int(said) << 10 if (said := fields.get("Installed-Size", "")) else None,
        )
    except (KeyError, ValueError) as error:
        raise InputError(
            f"the index of {suite} has an incomplete stanza: {error}",
            details=[str(fields.get("Package"))],
            resolution="use another mirror: this one's index is signed, and not what apt would read",
        ) from None
