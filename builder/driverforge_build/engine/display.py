"""Builds as a person follows them: a line a cell that changes on a terminal, a line a step elsewhere. Both on standard error."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from driverforge_build.engine.runner import Told

if TYPE_CHECKING:
    from rich.progress import TaskID


@contextmanager
def shown(cells: list[str]) -> Iterator[Told]:
    """A function to tell of steps while the block runs."""
    if not sys.stderr.isatty():
        lock = threading.Lock()

        def line(cell: str, text: str) -> None:
            with lock:
                print(f"{cell}: {text}", file=sys.stderr, flush=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(finished_text=" "),
        TextColumn("{task.fields[cell]}"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, TaskID] = {
            cell: progress.add_task("waiting", total=1, cell=cell, start=False) for cell in cells
        }

        def update(cell: str, text: str) -> None:
            progress.start_task(tasks[cell])
            progress.update(
                tasks[cell], description=text, completed=int(text in {"built", "failed", "skipped"})
            )

        yield update
