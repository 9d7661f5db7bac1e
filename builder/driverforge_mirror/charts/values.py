"""Values of a Helm chart: nested mappings whose leaves are texts, asked by paths such as `driver.version`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Values = Mapping[str, Any]

_TRUE = ("true", "yes", "on")


def merged(below: Values, above: Values) -> dict[str, Any]:
    """Helm's merge: mappings key by key, all else as a whole.

    Nothing (`key:`) takes a default away: it is '', which counts as not set.
    """
    found = dict(below)
    for key, value in above.items():
        known = found.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            found[key] = merged(known, value)
        else:
            found[key] = value
    return found


def at(values: Values, path: str) -> object:
    """What stands at a path; None where nothing does."""
    value: object = values
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def text_at(values: Values, path: str) -> str:
    """The text at a path, '' where there is none, or something else."""
    value = at(values, path)
    return _text(value)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else ""


def is_true(text: str) -> bool:
    return text.lower() in _TRUE


def table_at(values: Values, path: str) -> Values:
    value = at(values, path)
    return value if isinstance(value, Mapping) else {}


def tables(values: Values, path: str = "") -> Iterator[tuple[str, Values]]:
    """Every mapping within, with its path; lists are left alone."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            inner = f"{path}.{key}" if path else key
            yield inner, value
            yield from tables(value, inner)


def leaves(values: Values, path: str = "") -> Iterator[str]:
    """The paths of all texts within."""
    for key, value in values.items():
        inner = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from leaves(value, inner)
        elif not isinstance(value, list):
            yield inner
