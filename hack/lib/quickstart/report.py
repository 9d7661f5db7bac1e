"""What the person in front of the quickstart sees: phases as they run, and one table at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from driverforge_core.errors import DriverforgeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    phase: str
    seconds: float
    result: str  # 'ok', 'failed', 'not here: …'


@dataclass(slots=True)
class Report:
    """Phases that ran, in order.

    What failed stops the run. What cannot be had here is named, and the rest goes on.
    """

    console: Console = field(default_factory=lambda: Console(highlight=False, soft_wrap=True))
    rows: list[Row] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def phase(self, title: str) -> Iterator[Callable[[str], None]]:
        """Time a phase; the value given is a function that sets its result."""
        self.console.print(f"\n[bold cyan]▶ {title}[/]")
        started = time.monotonic()
        result = ["ok"]
        try:
            yield lambda text: result.__setitem__(0, text)
        except DriverforgeError as error:
            result[0] = f"failed: {error.brief}"
            raise
        except BaseException:
            result[0] = "failed"
            raise
        finally:
            self.rows.append(Row(phase=title, seconds=time.monotonic() - started, result=result[0]))

    def say(self, text: str) -> None:
        """Text of ours; rich markup is not interpreted, so it may hold anything."""
        for line in text.rstrip().splitlines():
            self.console.print(f"  {line}", markup=False)

    def command(self, *argv: object) -> None:
        self.console.print(f"  [green]$ {' '.join(str(word) for word in argv)}[/]")

    def missing(self, phase: str, why: str) -> None:
        self.rows.append(Row(phase=phase, seconds=0.0, result=f"not here: {why}"))
        self.console.print(f"\n[yellow]▶ {phase}: not on this machine: {why}[/]")

    def table(self) -> None:
        table = Table(title="hack/quickstart", title_justify="left", show_edge=False)
        table.add_column("phase")
        table.add_column("seconds", justify="right")
        table.add_column("result")
        for row in self.rows:
            table.add_row(row.phase, f"{row.seconds:.1f}", row.result)
        table.add_row("all", f"{sum(row.seconds for row in self.rows):.1f}", "")
        self.console.print()
        self.console.print(table)
        for what, where in self.places.items():
            self.say(f"{what}: {where}")
