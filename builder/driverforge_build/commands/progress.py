"""Downloads and builds as a person follows them, on standard error.

On a terminal there are bars and lines that change, elsewhere there is a line for each step.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from driverforge_build.commands.output import say
from driverforge_core.printable import printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from stamina.instrumentation import RetryDetails

    from driverforge_build.app.runner import CellListener
    from driverforge_build.fetch.fetcher import DownloadListener

LARGE = 1_000_000


class Lines:
    """A line for each download that takes a while, when it begins."""

    def started(self, name: str, total: int) -> None:
        if total >= LARGE:
            say(f"download {name} {total / 1e6:.1f} MB", err=True)

    def advanced(self, name: str, count: int) -> None: ...

    def finished(self, name: str) -> None: ...


class Bars:
    """A bar for each download under way."""

    def __init__(self, rich: Progress) -> None:
        self._rich = rich
        self._tasks: dict[str, TaskID] = {}

    def started(self, name: str, total: int) -> None:
        self._tasks[name] = self._rich.add_task(printable(name), total=total or None)

    def advanced(self, name: str, count: int) -> None:
        self._rich.advance(self._tasks[name], count)

    def finished(self, name: str) -> None:
        self._rich.remove_task(self._tasks.pop(name))


@contextmanager
def shown_downloads() -> Iterator[DownloadListener]:
    """Bars while the block runs if standard error is a terminal, else lines."""
    with _retries_told():
        if not sys.stderr.isatty():
            yield Lines()
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        # no markup: a name or a step with [brackets] is none of rich's commands
        name = TextColumn("{task.description}", markup=False)
        columns = (name, BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as rich:
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
    say(f"{details.caused_by}; again in {details.wait_for:.1f} s", err=True)


@contextmanager
def shown_builds(cells: list[str]) -> Iterator[CellListener]:
    """A function to tell of steps while the block runs."""
    if not sys.stderr.isatty():
        lock = threading.Lock()

        def line(cell: str, text: str) -> None:
            with lock:
                say(f"{cell}: {text}", err=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(finished_text=" "),
        TextColumn("{task.fields[cell]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, TaskID] = {
            cell: progress.add_task("waiting", total=1, cell=cell, start=False) for cell in cells
        }

        def update(cell: str, text: str) -> None:
            progress.start_task(tasks[cell])
            progress.update(
                tasks[cell],
                description=printable(text),
                completed=int(text in {"built", "failed", "skipped"}),
            )

        yield update
