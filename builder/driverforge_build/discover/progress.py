"""Downloads as a person follows them: bars on a terminal, one line a large file elsewhere; and why one waits. On standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .fetch import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID
    from stamina.instrumentation import RetryDetails

LARGE = 1_000_000


class Lines:
    """A line for each download that takes a while, when it begins."""

    def started(self, name: str, total: int) -> None:
        if total >= LARGE:
            print(f"download {name} {total / 1e6:.1f} MB", file=sys.stderr, flush=True)

    def advanced(self, name: str, count: int) -> None: ...

    def finished(self, name: str) -> None: ...


class Bars:
    """A bar for each download under way."""

    def __init__(self, rich: RichProgress) -> None:
        self._rich = rich
        self._tasks: dict[str, TaskID] = {}

    def started(self, name: str, total: int) -> None:
        self._tasks[name] = self._rich.add_task(name, total=total or None)

    def advanced(self, name: str, count: int) -> None:
        self._rich.advance(self._tasks[name], count)

    def finished(self, name: str) -> None:
        self._rich.remove_task(self._tasks.pop(name))


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Bars while the block runs if standard error is a terminal, else lines."""
    with _retries_told():
        if not sys.stderr.isatty():
            yield Lines()
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
        from rich.progress import Progress as RichProgress

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with RichProgress(*columns, console=Console(stderr=True), transient=True) as rich:
            yield Bars(rich)


@contextmanager
def _retries_told() -> Iterator[None]:
    """stamina's own log line says neither what failed nor how long it waits."""
    from stamina.instrumentation import set_on_retry_hooks

    set_on_retry_hooks([_tell])
    try:
        yield
    finally:
        set_on_retry_hooks(None)


def _tell(details: RetryDetails) -> None:
    print(f"{details.caused_by}; again in {details.wait_for:.1f} s", file=sys.stderr, flush=True)
