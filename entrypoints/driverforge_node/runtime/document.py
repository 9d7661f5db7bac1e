"""Edits of a TOML document that keep every comment and byte elsewhere.

The only module that knows the TOML library; each result is read again with the standard library's parser and compared with what was meant.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import tomllib
import tomlrt

from driverforge_core.errors import InputError, Unsupported

Path = tuple[str, ...]
BOM = "\ufeff"  # containerd 1.x reads over it


class Removed:
    """The value of a change that takes a key away."""


REMOVED = Removed()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One key and the value that it shall have. An empty dict stands for a table that shall exist."""

    path: Path
    value: object


def dotted(path: Path) -> str:
    """A key as a person writes it: plugins."io.containerd.grpc.v1.cri".containerd"""
    return ".".join(
        f'"{key}"' if not key.replace("_", "").replace("-", "").isalnum() else key for key in path
    )


def text_of(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{name} is not UTF-8 text",
            details=[f"{name}:{line}: {error.reason}"],
            resolution="repair the file",
        ) from error


def parse(data: bytes, name: str) -> dict[str, object]:
    """The document as values. Raises InputError with the place of the mistake; `name` is the file's, for messages."""
    try:
        return tomllib.loads(text_of(data, name).removeprefix(BOM))
    except (
        ValueError,
        RecursionError,
    ) as error:  # TOMLDecodeError is a ValueError; so is an integer of too many digits
        raise InputError(
            f"{name} is not valid TOML",
            details=[f"{name}: {error}"],
            resolution="repair the file; nothing was changed",
        ) from error


def leaves(table: Mapping[str, object], above: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every key that is no table, and every empty table, with its path."""
    for key, value in table.items():
        path = (*above, key)
        if isinstance(value, Mapping) and value:
            yield from leaves(value, path)
        else:
            yield path, value


def lookup(table: Mapping[str, object], path: Path) -> object:
    """The value at `path`, REMOVED where there is none."""
    found: object = table
    for key in path:
        if not isinstance(found, Mapping) or key not in found:
            return REMOVED
        found = found[key]
    return found


def table_at(table: Mapping[str, object], path: Path, name: str) -> dict[str, object]:
    """The table at `path`, {} where there is none. Raises InputError where the value is something else."""
    for depth in range(1, len(path) + 1):
        found = lookup(table, path[:depth])
        if found is not REMOVED and not isinstance(found, dict):
            raise InputError(
                f"{name}: {dotted(path[:depth])} is no table",
                resolution="repair the file; nothing was changed",
            )
    found = lookup(table, path)
    return found if isinstance(found, dict) else {}


def put(table: dict[str, object], path: Path, value: object) -> None:
    """Set a key of a document of values, with the tables above it."""
    *above, key = path
    _ensure(table, tuple(above))[key] = value


def take(table: dict[str, object], path: Path, keep: Mapping[str, object] | None = None) -> None:
    """Take a key away, and the tables that are empty then and not in `keep`."""
    _remove(table, path, keep or {})


def merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """Both documents' keys; where both have one, `above` wins."""
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        result[key] = (
            merged(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
        )
    return result


def rewritten(data: bytes, meant: Mapping[str, object], name: str) -> bytes:
    """The document with the values `meant` and as much of its text as can stay; raises as `edit`."""
    now = parse(data, name)
    before, after = dict(leaves(now)), dict(leaves(meant))
    gone = [
        Change(path=path, value=REMOVED)
        for path in before
        if path not in after and lookup(meant, path) is REMOVED
    ]
    new = [
        Change(path=path, value=value)
        for path, value in after.items()
        if path not in before or not same(before[path], value)
    ]
    return edit(data, [*gone, *new], name, keep=meant)


def same(one: object, other: object) -> bool:
    """Equal in type and value, `nan` being equal to itself (TOML and JSON have it, == says no)."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def edit(
    data: bytes, changes: Sequence[Change], name: str, *, keep: Mapping[str, object] | None = None
) -> bytes:
    """The document with `changes` applied in order; tables that a removal leaves empty go too, unless the document `keep` has them.

    Raises InputError for a broken document, Unsupported where it cannot be edited without touching other keys.
    """
    meant = parse(data, name)
    if not changes:
        return data
    text = text_of(data, name)
    try:
        document = tomlrt.loads(text.removeprefix(BOM))
        for change in changes:
            _apply(document, change, keep or {})
            _apply(meant, change, keep or {})
    except (tomlrt.TOMLError, TypeError, KeyError, RecursionError) as error:
        raise Unsupported(
            f"{name} cannot be edited: {error}",
            resolution="write its tables with [headers]; nothing was changed",
        ) from error
    result = (BOM * text.startswith(BOM) + tomlrt.dumps(document)).encode()
    try:
        equal = same(parse(result, name), meant)
    except RecursionError:  # it compares table by table
        equal = False
    if not equal:
        raise Unsupported(
            f"{name} cannot be edited without touching other keys",
            resolution="write its tables with [headers]; nothing was changed",
        )
    return result


def _apply(table: dict[str, object], change: Change, keep: Mapping[str, object]) -> None:
    *above, key = change.path
    if change.value is REMOVED:
        _remove(table, change.path, keep)
        return
    here = _ensure(table, tuple(above))
    existing = here.get(key)
    if change.value == {}:
        _ensure(here, (key,))
    elif isinstance(existing, list) and isinstance(change.value, list) and existing and change.value:
        _turn(existing, change.value)
    else:
        here[key] = copy.deepcopy(change.value)


def _turn(existing: list[object], value: Sequence[object]) -> None:
    """Make a list have the items of `value`, with the lines and comments of those that stay."""
    for place in range(len(existing) - 1, -1, -1):
        if existing[place] not in value:
            del existing[place]
    if list(existing) != list(value[: len(existing)]):
        existing[:] = value
    existing.extend(value[len(existing) :])


def _ensure(table: dict[str, object], path: Path) -> dict[str, object]:
    if not path:
        return table
    if isinstance(table, tomlrt.Table | tomlrt.Document):
        return table.ensure_table(path)
    for key in path:
        here = table.setdefault(key, {})
        if not isinstance(here, dict):
            raise TypeError(f"{key} is no table")
        table = here
    return table


def _remove(table: dict[str, object], path: Path, keep: Mapping[str, object]) -> None:
    chain = [table]
    for key in path[:-1]:
        here = chain[-1].get(key)
        if not isinstance(here, dict):
            return
        chain.append(here)
    chain[-1].pop(path[-1], None)
    for depth in range(len(path) - 1, 0, -1):
        if chain[depth] or lookup(keep, path[:depth]) is not REMOVED:
            return
        del chain[depth - 1][path[depth - 1]]
