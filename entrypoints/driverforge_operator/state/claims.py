"""Which NVIDIADrivers claim a node, found without asking each of thousands."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property


class Claims(tuple[str, ...]):
    """Names in order. Many nodes share one, and it may be long: its hash is worked out once."""

    @cached_property
    def _number(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._number


NOBODY = Claims()
Pair = tuple[str, str]


class Claimants:
    """Selectors of labels by the names of those that select, and the names of the default ones.

    Those are for nodes that no other selects. What a lookup costs depends on the node's labels.
    """

    def __init__(self, selectors: Mapping[str, Mapping[str, str]], defaults: Iterable[str] = ()) -> None:
        self._defaults = Claims(sorted(defaults))
        self._selectors = {name: frozenset(selector.items()) for name, selector in selectors.items()}
        self._pairs = Counter(pair for selector in self._selectors.values() for pair in selector)
        # a pair that many have says little: each is found by its rarest one
        self._by_pair: dict[Pair | None, list[str]] = defaultdict(list)
        for name, selector in self._selectors.items():
            rarest = min(selector, key=lambda pair: (self._pairs[pair], pair), default=None)
            self._by_pair[rarest].append(name)
        self._known: dict[frozenset[Pair], Claims] = {}

    def of(self, labels: Mapping[str, str]) -> Claims:
        """The names of those that claim a node with these labels, sorted."""
        has = frozenset(pair for pair in labels.items() if pair in self._pairs)
        found = self._known.get(has)
        if found is None:
            names = (name for pair in (None, *has) for name in self._by_pair.get(pair, ()))
            selecting = sorted(name for name in names if self._selectors[name] <= has)
            found = self._known[has] = Claims(selecting) if selecting else self._defaults
        return found
