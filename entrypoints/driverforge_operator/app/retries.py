"""Writes that failed: each waits by itself, for longer from one failure to the next."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from driverforge_operator.app.follow import Pause
from driverforge_operator.plan.actions import Action
from driverforge_operator.ports import Ref

_ROUNDS = 16
"""How often in a pause failures are decided on again, at most: thousands may fail for one reason."""

LASTS = 20.0
"""Seconds after which a failure is told: a webhook whose pod moves to another node is away for less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    action: Action
    until: float


class Retries:
    """One thread uses it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[Ref, _Failure] = {}
        self._pauses: dict[Ref, Pause] = {}
        self._since: dict[Ref, float] = {}  # in a row, for reasons of their own

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, ref: Ref) -> bool:
        return ref in self._waiting

    def fail(self, action: Action, *, not_before: float = 0, own: bool = True) -> None:
        """It failed, perhaps not for the first time; not for a reason of its `own` where all would fail."""
        if own:
            self._since.setdefault(action.ref, self._clock())
        else:
            self._since.pop(action.ref, None)
        pause = self._pauses.setdefault(action.ref, Pause()).seconds()
        grid = 2 ** math.ceil(math.log2(pause)) / _ROUNDS
        until = math.ceil((self._clock() + pause) / grid) * grid
        self._waiting[action.ref] = _Failure(action=action, until=max(until, not_before))

    def lasts(self, action: Action) -> bool:
        """Whether it has failed for `LASTS` or longer, each time for a reason of its own."""
        return self._clock() - self._since.get(action.ref, math.inf) >= LASTS

    def succeed(self, action: Action) -> None:
        """The next failure of the same object is its first one."""
        self._pauses.pop(action.ref, None)
        self._since.pop(action.ref, None)

    def due(self) -> list[Action]:
        """Those that waited long enough; they wait no more."""
        now = self._clock()
        found = [one.action for one in self._waiting.values() if one.until <= now]
        for action in found:
            del self._waiting[action.ref]
        return found

    def keep(self, decided: Iterable[Action]) -> set[Ref]:
        """Forget what failed before, and is not asked for any more; returns what is."""
        wanted = {action.ref for action in decided} | self._waiting.keys()
        self._pauses = {ref: pause for ref, pause in self._pauses.items() if ref in wanted}
        self._since = {ref: since for ref, since in self._since.items() if ref in wanted}
        return wanted

    def seconds(self) -> float:
        """Until the first one is due."""
        return max(min((one.until for one in self._waiting.values()), default=math.inf) - self._clock(), 0)

    @property
    def actions(self) -> list[Action]:
        return [one.action for one in self._waiting.values()]
