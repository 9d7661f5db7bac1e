"""Which configurations meet which daemon in every run: a small choice that leaves no key and no daemon out.

Each configuration with each daemon takes minutes; `hack/test --full` has them all. A choice of a third of the
configurations meets a real daemon with every key that any of them has, and every daemon in every mode.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

import tomllib

# below this depth keys are names of registries, runtimes and hosts that people chose
_DEPTH = 4


def keys(root: str | None) -> frozenset[Hashable]:
    """The paths of keys of a root file (TOML or JSON), of a depth of four at most.

    The text itself if it is neither.
    """
    text = root or ""
    try:
        tree: Any = json.loads(text) if text.startswith("{") else tomllib.loads(text)
    except ValueError:
        return frozenset({text})
    return frozenset(("json" if text.startswith("{") else "toml", *path) for path in _paths(tree, ()))


def _paths(tree: object, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(tree, Mapping) and len(above) < _DEPTH:
        for key, value in tree.items():
            yield (*above, key)
            yield from _paths(value, (*above, key))


def chosen(features: Sequence[Collection[Hashable]]) -> frozenset[int]:
    """Numbers of cases that have, together, every feature that any of them has; few, and always the same."""
    every = [frozenset(one) for one in features]
    missing = set[Hashable]().union(*every)
    found = set()
    while missing:
        best = max(range(len(every)), key=lambda number: (len(every[number] & missing), -number))
        found.add(best)
        missing -= every[best]
    return frozenset(found)
