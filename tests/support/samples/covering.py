"""Which configurations meet which daemon in every run: a small choice that leaves nothing out.

Each configuration with each daemon takes minutes; `hack/test --full` has them all. With a choice of less than
half of the configurations some real daemon meets each key that any of them has, and each daemon each mode.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

import tomllib

# tables whose keys are names that people chose
_NAMED = frozenset({"runtimes", "mirrors", "configs", "auths", "stream_processors", "headers"})


def keys(root: str | None) -> frozenset[Hashable]:
    """The paths of keys of a root file (TOML or JSON), with `*` for names that people chose.

    The text itself if it is neither.
    """
    text = root or ""
    try:
        tree: Any = json.loads(text) if text.startswith("{") else tomllib.loads(text)
    except ValueError:
        return frozenset({text})
    return frozenset(("json" if text.startswith("{") else "toml", *path) for path in _paths(tree, ()))


def _paths(tree: object, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            here = (*above, "*" if above and above[-1] in _NAMED else key)
            yield here
            yield from _paths(value, here)


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
