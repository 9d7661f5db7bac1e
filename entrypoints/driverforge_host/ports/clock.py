"""The clock of the process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class Clock(Protocol):
    """Time, and the stop signals that end a wait."""

    def monotonic(self) -> float: ...
    def now(self) -> float:
        """Seconds since the epoch."""

    def catch_signals(self) -> None:
        """From here on a stop signal ends the next wait and streamed commands, and not the process.

        The first wait does this, too.
        """

    def wait(self, seconds: float) -> str | None:
        """Sleep; returns early with the name of a stop signal ('SIGTERM', 'SIGINT') when one came.

        After a stop signal every further wait returns at once.
        """

    def pause(self, seconds: float) -> None:
        """Sleep to the end, also after a stop signal: for what must not be cut in half."""

    def ticks(self, *, timeout: float, interval: float) -> Iterator[float]:
        """Yield the elapsed seconds, at once and then every `interval` seconds.

        Ends when `timeout` seconds have passed or a stop signal came.
        """
