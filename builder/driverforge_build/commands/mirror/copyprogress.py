"""A copy as somebody follows it: bytes, rate and time left, on standard error.

One bar on a terminal; elsewhere a line every ten seconds and one for each image, with --json as objects.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from driverforge_build.commands.shared.output import say

if TYPE_CHECKING:
    from driverforge_mirror.copying.copier import Copied

_EVERY_S = 10.0
_TEXTS = {"held": "is there", "copied": "copied", "failed": "failed"}


@dataclass(slots=True)
class CopyProgress:
    """Counts, for any display. `moving` is called with what there is to tell: bytes done, of, a second.

    `each` image is told when it is done.
    """

    as_json: bool
    moving: Callable[[int, int, float], object]
    each: bool = True
    now: Callable[[], float] = time.monotonic
    _total: int = 0
    _done: int = 0
    _moved: int = 0
    _begun: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def begins(self, total: int) -> None:
        self._total, self._begun = total, self.now()

    def settled(self, size: int, *, told: int) -> None:
        with self._lock:
            self._done += size - told
            self._tell()

    def moved(self, count: int) -> None:
        with self._lock:
            self._done += count
            self._moved += count
            self._tell()

    def _tell(self) -> None:
        # bytes that are moved twice are not done twice
        self.moving(
            min(self._done, self._total), self._total, self._moved / max(self.now() - self._begun, 0.001)
        )

    def copied(self, result: Copied) -> None:
        if not self.each:
            return
        error = result.error.brief if result.error else ""
        text = f"{result.load.image} {_TEXTS[result.state]}" + (f": {error}" if error else "")
        self._say(text, event="image", image=result.load.image, state=result.state, error=error)

    def waiting(self, why: str, seconds: float) -> None:
        self._say(f"{why}; again in {seconds:.1f} s", event="waiting", why=why, seconds=round(seconds, 1))

    def _say(self, text: str, **event: object) -> None:
        with self._lock:
            say(json.dumps(event) if self.as_json else text, err=True)


def rate_text(done: int, total: int, rate: float) -> str:
    """'1.2 of 5.6 GB, 45 MB/s, 98 s left'."""
    left = f", {(total - done) / rate:.0f} s left" if rate and total > done else ""
    return f"{done / 1e9:.2f} of {total / 1e9:.2f} GB, {rate / 1e6:.0f} MB/s{left}"


@contextmanager
def shown_copy(
    *, as_json: bool, each: bool = True, now: Callable[[], float] = time.monotonic
) -> Iterator[CopyProgress]:
    """A bar while the block runs if standard error is a terminal, else lines, and one for `each` image."""
    if not sys.stderr.isatty():
        yield CopyProgress(as_json=as_json, each=each, moving=_lines(now, as_json=as_json), now=now)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as rich:
        task = rich.add_task("", total=None)
        yield CopyProgress(
            as_json=as_json,
            each=each,
            now=now,
            moving=lambda done, total, _rate: rich.update(task, completed=done, total=total),
        )


def _lines(now: Callable[[], float], *, as_json: bool) -> Callable[[int, int, float], None]:
    told = now()

    def line(done: int, total: int, rate: float) -> None:
        nonlocal told
        if now() - told < _EVERY_S:
            return
        told = now()
        if as_json:
            say(json.dumps({"event": "copy", "bytes": done, "total": total, "rate": round(rate)}), err=True)
        else:
            say(rate_text(done, total, rate), err=True)

    return line
