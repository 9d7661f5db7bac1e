"""Edits of a TOML document that keep every comment, and every byte elsewhere.

The only module that knows the TOML library, which is imported where something is edited, and where the
standard library's parser refuses a document: most starts read what that takes, TOML 1.0. The library reads
TOML 1.1 too (line breaks in inline tables, `\\e`). So do containerd 2.4.2 and Debian's 2.1.9; 1.6, 1.7 and
2.3.7 do not, by the library that they were built with, and refuse such a file themselves.

The library is not trusted: each result is read again and compared with what was meant.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from tomlrt import Document

DEEPEST = 1000  # dots in a line: for a key of 100,000 parts the library takes gigabytes


def parse(data: bytes, name: str) -> dict[str, object]:
    """The document as values; `name` is the file's, for messages.

    Raises InputError with the place of the mistake.
    """
    text = text_of(data, name).removeprefix(BOM)
    # TOMLDecodeError is a ValueError; so is an integer of too many digits
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return _document(text).to_dict()
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{name} is not valid TOML",
            details=[f"{name}: {error}"],
            resolution="repair the file; nothing was changed",
        ) from error


def _document(text: str) -> Document:
    """The library's document. Raises ValueError for what is no TOML 1.1, and RecursionError."""
    import tomlrt

    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > DEEPEST:
            raise ValueError(f"more than {DEEPEST} dots in one line (line {number})")
    try:
        return tomlrt.loads(text)
    except tomlrt.TOMLError as error:
        raise ValueError(str(error)) from error


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
        document = _document(text.removeprefix(BOM))
        for change in changes:
            _apply(document, change, keep)
            _apply(meant, change, keep)
    except (tomlrt.TOMLError, ValueError, TypeError, KeyError, RecursionError) as error:
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
