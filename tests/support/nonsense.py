"""Values of a matrix's row, and copies of the row with one of them turned to nonsense."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Path = tuple[str | int, ...]
"""The keys and indexes that lead to a value of a row's data."""


def values(data: Any, path: Path = ()) -> Iterator[tuple[Path, str | bool]]:
    """Every text and flag of a row's data."""
    if isinstance(data, (str, bool)):
        yield path, data
    elif isinstance(data, Mapping):
        for name, value in data.items():
            yield from values(value, (*path, name))
    elif isinstance(data, Sequence):
        for index, value in enumerate(data):
            yield from values(value, (*path, index))


def spoilt(data: Any, path: Path) -> Any:
    """A copy of the data with nonsense at one place."""
    if not path:
        return _nonsense(data)
    first, *rest = path
    if isinstance(data, Mapping):
        return {**data, first: spoilt(data[first], tuple(rest))}
    assert isinstance(first, int)
    return (*data[:first], spoilt(data[first], tuple(rest)), *data[first + 1 :])


def _nonsense(value: str | bool) -> str | bool:
    """Another flag; a text with nonsense in it, of a path or an address in the last part."""
    if isinstance(value, bool):
        return not value
    folder, slash, name = value.rpartition("/")
    return f"{folder}{slash}nonsense{name}"
