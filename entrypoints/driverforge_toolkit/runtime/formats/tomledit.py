"""Edits of a TOML document that keep every comment, and every byte elsewhere.

The only module that knows the TOML library, which is imported where something is edited: most starts only
read. It does not trust the library: each result is read again with the standard library's parser and compared
with what was meant.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import tomllib

from driverforge_core.errors import InputError, Unsupported
from driverforge_toolkit.runtime.formats.values import (
    BOM,
    REMOVED,
    Change,
    KeyPath,
    same,
    take,
    text_of,
)


def parse(data: bytes, name: str) -> dict[str, object]:
    """The document as values; `name` is the file's, for messages.

    Raises InputError with the place of the mistake.
    """
    try:
        return tomllib.loads(text_of(data, name).removeprefix(BOM))
    except (
        ValueError,
        RecursionError,
    ) as error:
        # TOMLDecodeError is a ValueError; so is an integer of too many digits
        raise InputError(
            f"{name} is not valid TOML",
            details=[f"{name}: {error}"],
            resolution="repair the file; nothing was changed",
        ) from error


def edited(
    data: bytes,
    values: Mapping[str, object],
    changes: Sequence[Change],
    name: str,
    *,
    keep: Mapping[str, object],
) -> tuple[bytes, dict[str, object]]:
    """See `ConfigFile.edited`: the new document, and its values. `values` are those of `data`."""
    import tomlrt

    text = text_of(data, name)
    try:
        meant = copy.deepcopy(dict(values))
        document = tomlrt.loads(text.removeprefix(BOM))
        for change in changes:
            _apply(document, change, keep)
            _apply(meant, change, keep)
    except (tomlrt.TOMLError, TypeError, KeyError, RecursionError) as error:
        raise Unsupported(
            f"{name} cannot be edited: {error}",
            resolution="write its tables with [headers]; nothing was changed",
        ) from error
    result = (BOM * text.startswith(BOM) + tomlrt.dumps(document)).encode()
    found = parse(result, name)
    try:
        equal = same(found, meant)
    except RecursionError:  # it compares table by table
        equal = False
    if not equal:
        raise Unsupported(
            f"{name} cannot be edited without touching other keys",
            resolution="write its tables with [headers]; nothing was changed",
        )
    return result, found


def _apply(table: dict[str, object], change: Change, keep: Mapping[str, object]) -> None:
    *above, key = change.path
    if change.value is REMOVED:
        take(table, change.path, keep)
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
    """Make a list have the items of `value`. Those that stay keep their lines and comments."""
    for place in range(len(existing) - 1, -1, -1):
        if existing[place] not in value:
            del existing[place]
    if list(existing) != list(value[: len(existing)]):
        existing[:] = value
    existing.extend(value[len(existing) :])


def _ensure(table: dict[str, object], path: KeyPath) -> dict[str, object]:
    if not path:
        return table
    import tomlrt

    if isinstance(table, tomlrt.Table | tomlrt.Document):
        return table.ensure_table(path)
    for key in path:
        here = table.setdefault(key, {})
        if not isinstance(here, dict):
            raise TypeError(f"{key} is not a table")
        table = here
    return table
