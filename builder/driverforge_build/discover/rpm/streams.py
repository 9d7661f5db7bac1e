"""modules.yaml: packages of module streams, which dnf does not see unless a stream is enabled.

Format: modulemd of Fedora's libmodulemd. RHEL 8 and 9 have several versions of a program as streams; the
default ones are enabled without asking.

Read as events, for the reasons that matrix/yamltree.py has: what a repository sends shall not end the
process, and every value is text, so that stream 1.10 is not 1.1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from driverforge_build.packed import DAMAGED, unpacked
from driverforge_core.errors import InputError

LIMIT = 256 << 20
"""Bytes, unpacked. AppStream's of RHEL 8 has less than 20 MB."""
DEPTH = 32
"""Of collections in each other; a module has seven."""


class _Strange(ValueError):
    """What no module has."""


_UNREADABLE: tuple[type[Exception], ...] = (yaml.YAMLError, _Strange, *DAMAGED)
_RPMS = ("data", "artifacts", "rpms")

_Values = Mapping[tuple[str, ...], list[str]]
"""The scalars of a document by the keys above them; those of a list have the list's."""


@dataclass(slots=True, kw_only=True)
class _Open:
    """A collection that is being read; `key` is that of the value that a mapping is at."""

    mapping: bool
    key: str | None = None

    @property
    def wants_key(self) -> bool:
        return self.mapping and self.key is None


def hidden_packages(path: Path, suffix: str, *, limit: int = LIMIT) -> frozenset[str]:
    """The packages of streams that are no default, 'name-[epoch:]version-release.arch'. Raises InputError."""
    try:
        with path.open("rb") as file:
            text = unpacked(file, suffix).read(limit + 1)
        if len(text) > limit:
            raise EOFError(f"it unpacks to more than {limit} bytes")
        return _hidden(_documents(text))
    except _UNREADABLE as error:
        raise InputError(
            f"cannot read the module streams {path}: {error}",
            resolution="use another mirror: this one's modules.yaml is not what dnf would read",
        ) from error


def _hidden(documents: Iterator[_Values]) -> frozenset[str]:
    defaults: set[tuple[str, str]] = set()
    packages: dict[tuple[str, str], set[str]] = defaultdict(set)
    for document in documents:
        kind = document.get(("document",))
        if kind == ["modulemd-defaults"] and ("data", "stream") in document:
            defaults.add((_one(document, "data", "module"), _one(document, "data", "stream")))
        elif kind == ["modulemd"]:
            stream = _one(document, "data", "name"), _one(document, "data", "stream")
            packages[stream] |= {_without_zero_epoch(name) for name in document.get(_RPMS, ())}
    shown = {name for stream in defaults for name in packages.pop(stream, ())}
    return frozenset(name for names in packages.values() for name in names) - shown


def _one(document: _Values, *keys: str) -> str:
    try:
        (value,) = document[keys]
    except (KeyError, ValueError):
        raise _Strange(f"a document has not one {'.'.join(keys)}") from None
    return value


def _documents(text: bytes) -> Iterator[_Values]:
    """Raises yaml.YAMLError, and _Strange for aliases, deep nesting, lists as keys."""
    values: dict[tuple[str, ...], list[str]] = defaultdict(list)
    opened: list[_Open] = []
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.DocumentEndEvent):
            yield values
            values = defaultdict(list)
        elif isinstance(event, yaml.AliasEvent):
            raise _Strange(f"it has an alias, *{event.anchor}")
        elif isinstance(event, yaml.ScalarEvent):
            if opened and opened[-1].wants_key:
                opened[-1].key = event.value
            else:
                values[tuple(one.key for one in opened if one.key is not None)].append(event.value)
                _end_value(opened)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(opened) == DEPTH or (opened and opened[-1].wants_key):
                raise _Strange("it nests deeper than any module, or has a list as a key")
            opened.append(_Open(mapping=isinstance(event, yaml.MappingStartEvent)))
        elif isinstance(event, yaml.CollectionEndEvent):
            opened.pop()
            _end_value(opened)


def _end_value(opened: list[_Open]) -> None:
    if opened:
        opened[-1].key = None


def _without_zero_epoch(nevra: str) -> str:
    """'perl-4:5.32-1.el8.x86_64' stays, of 'make-0:4.3-1.el8.x86_64' the 0: goes."""
    return nevra.replace("-0:", "-", 1)
