"""Configurations as values: a document's keys by their paths, and what differs between two documents.

TOML and JSON documents are the same here: tables by name, and values in them. `tomledit` and `jsonedit` bring
a difference into a file's text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from driverforge_core.errors import InputError

KeyPath = tuple[str, ...]


BOM = "\ufeff"  # containerd 1.x reads over it


class Removed:
    """The value of a change that takes a key away."""


REMOVED = Removed()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One key and the value that it shall have. An empty dict stands for a table that shall exist."""

    path: KeyPath
    value: object


def dotted(path: KeyPath) -> str:
    """A key as a person writes it: `plugins."io.containerd.grpc.v1.cri".containerd`."""
    return ".".join(
        f'"{key}"' if not key.replace("_", "").replace("-", "").isalnum() else key for key in path
    )


def text_of(data: bytes, name: str) -> str:
    """The text of a file; `name` is the file's, for messages.

    Raises InputError, with the line, for a file that is not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{name} is not UTF-8 text",
            details=[f"{name}:{line}: {error.reason}"],
            resolution="repair the file",
        ) from error


def leaves(table: Mapping[str, object], above: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """Every key that is not a table, and every empty table, with its path."""
    for key, value in table.items():
        path = (*above, key)
        if isinstance(value, Mapping) and value:
            yield from leaves(value, path)
        else:
            yield path, value


def lookup(table: Mapping[str, object], path: KeyPath) -> object:
    """The value at `path`, REMOVED where there is none."""
    found: object = table
    for key in path:
        if not isinstance(found, Mapping) or key not in found:
            return REMOVED
        found = found[key]
    return found


def table_at(table: Mapping[str, object], path: KeyPath, name: str) -> dict[str, object]:
    """The table at `path`, {} where there is none. Raises InputError where something else is there."""
    for depth in range(1, len(path) + 1):
        found = lookup(table, path[:depth])
        if found is not REMOVED and not isinstance(found, dict):
            raise InputError(
                f"{name}: {dotted(path[:depth])} is not a table",
                resolution="repair the file; nothing was changed",
            )
    found = lookup(table, path)
    return found if isinstance(found, dict) else {}


def put(table: dict[str, object], path: KeyPath, value: object) -> None:
    """Set a key of a document of values, with the tables above it."""
    *above, last = path
    for key in above:
        here = table.setdefault(key, {})
        if not isinstance(here, dict):
            raise TypeError(f"{key} is not a table")
        table = here
    table[last] = value


def take(table: dict[str, object], path: KeyPath, keep: Mapping[str, object] | None = None) -> None:
    """Take a key away, and the tables that are empty then and not in `keep`."""
    chain = [table]
    for key in path[:-1]:
        here = chain[-1].get(key)
        if not isinstance(here, dict):
            return
        chain.append(here)
    chain[-1].pop(path[-1], None)
    for depth in range(len(path) - 1, 0, -1):
        if chain[depth] or lookup(keep or {}, path[:depth]) is not REMOVED:
            return
        del chain[depth - 1][path[depth - 1]]


def merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """The keys of both documents. Where both have one, the value of `above` counts."""
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        result[key] = (
            merged(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
        )
    return result


def same(one: object, other: object) -> bool:
    """Whether two values are equal in type and value.

    `nan` is equal to itself here: TOML and JSON have it.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def changes_between(now: Mapping[str, object], meant: Mapping[str, object]) -> list[Change]:
    """The changes that make `now` into `meant`: keys that go, then keys that come or get another value."""
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
    return [*gone, *new]


# the list of imports names the files that were read; the version is the daemon's own
BOOKKEEPING = (("imports",), ("version",))


def without_zeros(table: object) -> dict[str, object]:
    """A table without the keys that are empty, 0 or false.

    containerd and CRI-O print all fields of a structure, whether they were set or not.
    """
    if not isinstance(table, Mapping):
        return {}
    pairs = {
        key: without_zeros(value) if isinstance(value, Mapping) else value for key, value in table.items()
    }
    return {key: value for key, value in pairs.items() if value}


def differing(
    before: Mapping[str, object], after: Mapping[str, object]
) -> dict[KeyPath, tuple[object, object]]:
    """The keys whose value the daemon sees differently, as (before, after); REMOVED where there is none.

    A zero counts as not there.
    """
    old, new = dict(leaves(without_zeros(before))), dict(leaves(without_zeros(after)))
    paths = [path for path in {**old, **new} if not same(old.get(path, REMOVED), new.get(path, REMOVED))]
    return {
        path: (old.get(path, REMOVED), new.get(path, REMOVED)) for path in paths if path not in BOOKKEEPING
    }


def describe(path: KeyPath, before: object, after: object) -> str:
    """A difference as a person reads it: `oom_score: 0 -> (not set)`."""
    shown = ["(not set)" if value is REMOVED else repr(value) for value in (before, after)]
    return f"{dotted(path)}: {shown[0]} -> {shown[1]}"
