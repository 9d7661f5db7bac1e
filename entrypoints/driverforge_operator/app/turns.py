"""Whose turn it is, where more is to be written than one round writes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, zip_longest
from operator import itemgetter

from driverforge_operator.plan.actions import Action
from driverforge_operator.ports import Ref


class Turns:
    """What a round leaves and what came since take turns in the next one: neither starves the other."""

    def __init__(self) -> None:
        self._waited: dict[Ref, int] = {}
        self._numbers = count()

    def order(self, actions: Iterable[Action]) -> list[Action]:
        """One that was left, the oldest first, a new one as planned, and so on."""
        left: list[tuple[int, Action]] = []
        new: list[Action] = []
        for action in actions:
            since = self._waited.get(action.ref)
            if since is None:
                new.append(action)
            else:
                left.append((since, action))
        left.sort(key=itemgetter(0))
        oldest = (action for _, action in left)
        return [one for pair in zip_longest(oldest, new) for one in pair if one is not None]

    def leave(self, actions: Iterable[Action], *, failed: Iterable[Action] = ()) -> None:
        """A round ended before these. Those that `failed` in it had their turn, and come after the others."""
        had = {action.ref for action in failed}
        waited = {ref: number for ref, number in self._waited.items() if ref not in had}
        refs = sorted((action.ref for action in actions), key=had.__contains__)
        self._waited = {one: waited[one] if one in waited else next(self._numbers) for one in refs}
