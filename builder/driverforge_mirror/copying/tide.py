"""How many transfers run side by side: as many as make the whole faster, fewer where somebody is busy.

Registries count requests, disks seek: no fixed number is right for all of them. Every period the number goes
one step on in the direction that made it faster, else back; a server that says it is busy halves it at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PERIOD_S = 1.0
_FASTER = 1.05


class Tide:
    """A gate of changing width, for threads. `now` in seconds."""

    def __init__(
        self, *, now: Callable[[], float], first: int = 4, highest: int = 16, period: float = PERIOD_S
    ) -> None:
        self.width, self.highest = first, highest
        self._now, self._period = now, period
        self._turns, self._room = 0, threading.Condition()
        self._since, self._moved = now(), 0
        self._rate, self._step = 0.0, 1
        self._ebbed = float("-inf")

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for room, and take it while the block runs."""
        with self._room:
            self._room.wait_for(lambda: self._turns < self.width)
            self._turns += 1
        try:
            yield
        finally:
            with self._room:
                self._turns -= 1
                self._room.notify_all()

    def moved(self, count: int) -> None:
        """Bytes have been moved."""
        with self._room:
            self._moved += count
            if (passed := self._now() - self._since) < self._period:
                return
            rate = self._moved / passed
            # a width that was not used says nothing
            if self._turns == self.width:
                if rate < self._rate * _FASTER:
                    self._step = -self._step
                self._widen(self.width + self._step)
            self._rate = rate
            self._since, self._moved = self._now(), 0

    def ebb(self) -> None:
        """Somebody is busy: half as many. All transfers that hear it in one period hear the same."""
        with self._room:
            if self._now() - self._ebbed < self._period:
                return
            self._ebbed, self._step = self._now(), 1
            self._widen(self.width // 2)

    def _widen(self, width: int) -> None:
        self.width = max(1, min(self.highest, width))
        self._room.notify_all()
