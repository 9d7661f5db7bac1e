"""Downloads, pauses and builds as somebody follows them, on standard error.

On a terminal there are bars and lines that change, elsewhere there is a line for each step; with --json that
line is a JSON object.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from driverforge_build.commands.shared.output import say
from driverforge_core.printable import printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from driverforge_build.app.runner import CellListener
    from driverforge_build.fetch.fetcher import DownloadListener

LARGE = 1_000_000
_EVERY_S = 10.0


class Lines:
    """A line for each download that takes a while: when it begins, and every ten seconds."""

    def __init__(self, *, as_json: bool, now: Callable[[], float] = time.monotonic) -> None:
        self._as_json = as_json
        self._now = now
        # downloads run side by side, and a line goes out in two writes
        self._lock = threading.Lock()

    @contextmanager
    def download(self, name: str, total: int) -> Iterator[Callable[[int], object]]:
        done, told = 0, self._now()

        def advanced(count: int) -> None:
            nonlocal done, told
            done += count
            if self._now() - told >= _EVERY_S:
                told = self._now()
                self._tell_bytes(name, done, total)

        if total >= LARGE:
            self._tell_bytes(name, 0, total)
        yield advanced

    def waiting(self, why: str, seconds: float) -> None:
        self._tell(_pause(why, seconds), event="waiting", why=why, seconds=round(seconds, 1))

    def _tell_bytes(self, name: str, done: int, total: int) -> None:
        sizes = " of ".join(f"{size / 1e6:.1f}" for size in (done, total) if size)
        self._tell(f"download {name} {sizes} MB", event="download", name=name, bytes=done, total=total)

    def _tell(self, text: str, **event: object) -> None:
        with self._lock:
            say(json.dumps(event) if self._as_json else text, err=True)


class Bars:
    """A bar for each download under way."""

    def __init__(self, rich: Progress) -> None:
        self._rich = rich

    @contextmanager
    def download(self, name: str, total: int) -> Iterator[Callable[[int], object]]:
        task: TaskID = self._rich.add_task(printable(name), total=total or None)
        try:
            yield lambda count: self._rich.advance(task, count)
        finally:
            self._rich.remove_task(task)

    def waiting(self, why: str, seconds: float) -> None:
        # rich has put itself in standard error's place: the line goes above the bars
        say(_pause(why, seconds), err=True)


def _pause(why: str, seconds: float) -> str:
    return f"{why}; again in {seconds:.1f} s"


@contextmanager
def shown_downloads(*, as_json: bool) -> Iterator[DownloadListener]:
    """Bars while the block runs if standard error is a terminal, else lines."""
    if not sys.stderr.isatty():
        yield Lines(as_json=as_json)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    # no markup: a name or a step with [brackets] is none of rich's commands
    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as rich:
        yield Bars(rich)


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
                completed=int(text in {"built", "passed", "failed", "error", "skipped"}),
            )

        yield update
