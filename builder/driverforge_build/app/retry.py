"""Another attempt at what failed for a passing reason, and only at that.

Who raises TemporaryFailure says that the same call may work later: a registry that answers 429 or 5xx, a
mirror that does not answer, a connection that broke. A compiler's error is none, however often it is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from driverforge_build.ports import StepListener
from driverforge_core.errors import TemporaryFailure

T = TypeVar("T")

PAUSES_S = (10.0, 30.0, 60.0, 120.0)
"""Before the second attempt, the third, …; the last one before all further ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """An attempt that was followed by another one, and what it took."""

    reason: str
    seconds: float


@dataclass(slots=True, kw_only=True)
class Attempts:
    """Attempts at one cell, which `left` counts down: for its build and its push together."""

    left: int
    told: StepListener
    wait: Callable[[float], object] = time.sleep
    failed: list[FailedAttempt] = field(default_factory=list)

    def at(self, action: Callable[[], T]) -> T:
        """What the action returns. Raises what it raises: at once where trying again is no use."""
        while True:
            started = time.monotonic()
            try:
                return action()
            except TemporaryFailure as error:
                if self.left <= 0:
                    raise
                self.left -= 1
                pause = PAUSES_S[min(len(self.failed), len(PAUSES_S) - 1)]
                spent = time.monotonic() - started
                self.failed.append(FailedAttempt(reason=error.brief, seconds=spent))
                self.told(f"{error.brief}; again in {pause:.0f} s")
                self.wait(pause)
