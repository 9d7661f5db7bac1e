"""primary.xml of an RPM repository, read as a stream: its packages, what they need and provide.

Format: createrepo_c's (rpm-software-management/createrepo_c, src/xml_dump_primary.c). RHEL's largest unpacks
to more than 1 GB, most of it the kernels' symbols, which are left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from xml.parsers import expat

from driverforge_build.discover.offered import Requirement
from driverforge_build.lock import sound
from driverforge_build.packed import DAMAGED, unpacked
from driverforge_build.ports import Algorithm, Sum, sha256_sum
from driverforge_core.errors import InputError

PRIMARY_LIMIT = 4 << 30
"""Bytes, unpacked."""
FIELD_LIMIT = 1 << 20
"""Characters of one text. A description may be long, and is not read."""
ENTRIES_LIMIT = 20_000_000
"""Requires, Provides and files of all packages, without what is left out."""
_CHUNK = 1 << 18
_RELATIONS = {"EQ": "=", "LT": "<<", "LE": "<=", "GE": ">=", "GT": ">>"}
# symbols and hardware that kernels and their modules provide, and what only rpm itself can say
_LEFT_OUT = ("ksym(", "kernel(", "modalias(", "rpmlib(", "debuginfo(")
PATH = re.compile(r"[A-Za-z0-9._+~@%^=,{}-]+(?:/[A-Za-z0-9._+~@%^=,{}-]+)*")
_TEXTS = frozenset(("name", "arch", "checksum", "rpm:sourcerpm", "file"))
SUMS = frozenset(one.value for one in Algorithm)
_NO_SUM = sha256_sum("")


class ForbiddenXml(Exception):
    """The document declares something: entities of its own are how a few bytes become gigabytes."""


class OtherSums(ValueError):
    """A repository whose files are known by sums that count for nothing here, such as sha1."""

    def __init__(self, what: str, kind: str) -> None:
        super().__init__(f"{what} is known by its {kind} alone, and a lock pins sha256")


def named_sum(what: str, kind: str, text: str) -> Sum:
    """The sum that an index names a file by: createrepo_c's sha256, product-composer's sha512.

    Raises OtherSums, ValueError.
    """
    if kind not in SUMS:
        raise OtherSums(what, kind or "sum of no kind")
    return sound.any_sum(what, Sum(algorithm=Algorithm(kind), digest=text.strip().lower()))


OF_OTHER_SUMS = (
    "leave its system out: --skip 'OS-*'; or give a copy of your own, whose index `createrepo_c --checksum "
    "sha256` has made: --mirror OS/REPOSITORY=URL"
)


UNREADABLE: tuple[type[Exception], ...] = (
    expat.ExpatError,
    ForbiddenXml,
    LookupError,
    ValueError,
    *DAMAGED,
)
"""What reading a damaged document raises."""


@dataclass(slots=True, kw_only=True)
class Record:
    """One package. `version` is [epoch:]version-release; `conditions` are rich dependencies, as text."""

    name: str = ""
    version: str = ""
    arch: str = ""
    source: str = ""
    path: str = ""
    sum: Sum = _NO_SUM
    size: int = 0
    installed: int | None = None
    requires: list[Requirement] = field(default_factory=list)
    rich: list[str] = field(default_factory=list)
    provides: list[Requirement] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def read_primary(
    path: Path,
    suffix: str,
    *,
    archs: frozenset[str],
    limit: int = PRIMARY_LIMIT,
    entries: int = ENTRIES_LIMIT,
) -> Iterator[Record]:
    """The packages for some machines ('x86_64', 'noarch').

    Raises InputError for a document that is damaged, declares entities, or unpacks to more than `limit`
    bytes, or has more than so many `entries`.
    """
    reader = _Reader(entries)
    try:
        with path.open("rb") as file:
            for record in _fed(reader, unpacked(file, suffix), limit):
                if record.arch in archs:
                    yield record
    except UNREADABLE as error:
        raise InputError(
            f"cannot read the index {path}: {error}",
            resolution=OF_OTHER_SUMS
            if isinstance(error, OtherSums)
            else "use another mirror: this one's index is not what the package manager would read",
        ) from error
    if not reader.ended:
        raise InputError(
            f"the index {path} ends in the middle", resolution="remove the file and run the command again"
        )


def _fed(reader: _Reader, stream: IO[bytes], limit: int) -> Iterator[Record]:
    parser = safe_parser()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    size = 0
    while chunk := stream.read(_CHUNK):
        size += len(chunk)
        if size > limit:
            raise EOFError(f"it unpacks to more than {limit} bytes")
        parser.Parse(chunk, False)
        yield from reader.take()
    parser.Parse(b"", True)
    yield from reader.take()


def safe_parser() -> expat.XMLParserType:
    """An expat parser that refuses declarations."""
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise ForbiddenXml("it has a document type declaration")

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.buffer_text = True
    return parser


class _Reader:
    """The state between two elements of a primary.xml."""

    def __init__(self, entries: int) -> None:
        self.ended = False
        self._entries_left = entries
        self._done: list[Record] = []
        self._record = Record()
        self._list: list[Requirement] | None = None
        self._text: list[str] | None = None
        self._length = 0
        self._sums = ""

    def take(self) -> list[Record]:
        done, self._done = self._done, []
        return done

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "rpm:entry":
            self._entry(attributes)
        elif tag == "package":
            self._record = Record()
        elif tag == "version":
            epoch = attributes.get("epoch", "0")
            version = f"{attributes['ver']}-{attributes['rel']}"
            self._record.version = version if epoch in ("", "0") else f"{epoch}:{version}"
        elif tag == "size":
            self._record.size = int(attributes["package"])
            self._record.installed = int(attributes["installed"]) if "installed" in attributes else None
        elif tag == "location":
            self._record.path = _below(attributes)
        elif tag in ("rpm:requires", "rpm:provides"):
            self._list = self._record.requires if tag == "rpm:requires" else self._record.provides
        elif tag in _TEXTS:
            self._text, self._length, self._sums = [], 0, attributes.get("type", "")

    def end(self, tag: str) -> None:
        if tag in _TEXTS and self._text is not None:
            self._keep(tag, sys.intern("".join(self._text)) if tag != "checksum" else "".join(self._text))
            self._text = None
        elif tag in ("rpm:requires", "rpm:provides"):
            self._list = None
        elif tag == "package":
            self._finish()
        elif tag == "metadata":
            self.ended = True

    def text(self, data: str) -> None:
        if self._text is not None:
            self._length += len(data)
            if self._length > FIELD_LIMIT:
                raise ValueError(f"a text of {self._record.name} has more than {FIELD_LIMIT} characters")
            self._text.append(data)

    def _keep(self, tag: str, text: str) -> None:
        if tag == "name":
            self._record.name = text
        elif tag == "arch":
            self._record.arch = text
        elif tag == "rpm:sourcerpm":
            self._record.source = text
        elif tag == "file":
            self._count_entry()
            self._record.files.append(text)
        else:
            self._record.sum = named_sum(self._record.name or "a package", self._sums, text)

    def _entry(self, attributes: dict[str, str]) -> None:
        name = attributes["name"]
        if self._list is None or name.startswith(_LEFT_OUT):
            return
        self._count_entry()
        if name.startswith("("):
            self._record.rich.append(name)
            return
        relation = _RELATIONS.get(attributes.get("flags", ""), "")
        self._list.append(
            Requirement(
                name=sys.intern(name), relation=relation, version=_evr(attributes) if relation else ""
            )
        )

    def _count_entry(self) -> None:
        self._entries_left -= 1
        if self._entries_left < 0:
            raise ValueError("its packages need and provide more than those of any repository")

    def _finish(self) -> None:
        record = self._record
        if not (record.name and record.version and record.path and record.size and record.sum.digest):
            raise ValueError(f"the entry of {record.name or 'a package'} is not whole")
        self._done.append(record)


def _evr(attributes: dict[str, str]) -> str:
    """[epoch:]version[-release] of a dependency."""
    epoch, release = attributes.get("epoch", "0"), attributes.get("rel", "")
    version = f"{attributes.get('ver', '')}{f'-{release}' if release else ''}"
    return sys.intern(version if epoch in ("", "0") else f"{epoch}:{version}")


def _below(attributes: dict[str, str]) -> str:
    """A location, which has to lie below the repository's own address."""
    href = attributes["href"]
    if "xml:base" in attributes or not PATH.fullmatch(href) or ".." in href.split("/"):
        raise ValueError(f"{href!r} does not lie below the repository's address")
    return href
