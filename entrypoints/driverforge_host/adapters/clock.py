"""Time and stop signals: every wait ends early when somebody asks us to stop."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class SignalClock:
    """The `Clock` port. A command that neither waits nor catches signals keeps Python's own handlers."""

    def __init__(self) -> None:
        self._stop: str | None = None
        self._pipe: tuple[int, int] | None = None

    def stop_requested(self) -> str | None:
        return self._stop

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._stop = self._stop or signal.Signals(number).name

    def _arm(self) -> int:
        if self._pipe is None:
            self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            # the C-level handler writes into the pipe even between our check and select()
            signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            for number in STOP_SIGNALS:
                signal.signal(number, self._on_signal)
            signal.signal(signal.SIGCHLD, lambda *_: None)  # a daemon that ends wakes the supervisor
        return self._pipe[0]

    def catch_signals(self) -> None:
        self._arm()

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> float:
        return time.time()

    def wait(self, seconds: float) -> str | None:
        wakeup = self._arm()
        if self._stop is None and seconds > 0:
            select.select([wakeup], [], [], seconds)
        with suppress(BlockingIOError):
            while os.read(wakeup, 4096):
                pass
        return self._stop

    def pause(self, seconds: float) -> None:
        self._arm()
        time.sleep(seconds)  # goes on after a signal's handler (PEP 475)

    def ticks(self, *, timeout: float, interval: float) -> Iterator[float]:
        start = self.monotonic()
        while True:
            elapsed = self.monotonic() - start
            yield elapsed
            rest = timeout - (self.monotonic() - start)
            if rest <= 0 or self.wait(min(interval, rest)) is not None:
                return
