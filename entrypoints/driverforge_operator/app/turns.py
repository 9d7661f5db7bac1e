"""Whose turn it is, where more is to be written than one round writes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, zip_longest

from driverforge_operator.plan.actions import Action


class Turns:
    """What a round leaves and what came since take turns in the next one: neither starves the other."""

    def __init__(self) -> None:
        self._waited: dict[str, int] = {}
        self._numbers = count()

    def order(self, actions: Iterable[Action]) -> list[Action]:
        """One that was left, the oldest first, a new one as planned, and so on."""
        left: list[Action] = []
        new: list[Action] = []
        for action in actions:
            (left if subject(action) in self._waited else new).append(action)
        left.sort(key=lambda action: self._waited[subject(action)])
        return [one for pair in zip_longest(left, new) for one in pair if one is not None]

    def leave(self, actions: Iterable[Action]) -> None:
        """A round ended before these."""
        waited = self._waited
        subjects = [subject(action) for action in actions]
        self._waited = {one: waited[one] if one in waited else next(self._numbers) for one in subjects}


def subject(action: Action) -> str:
    """What an action is about, whatever it does."""
    return str(action).partition(":")[0]
