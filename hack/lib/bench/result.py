"""What a benchmark says: pairs of values that were measured in one run, as ratios.

There is a table for people and JSON for machines.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

SCHEMA = 1
_COLUMNS = ("benchmark", "ours", "against", "ratio", "lowest")
_PREFIXES = ((1e-6, 1e6, "µ"), (1e-3, 1e3, "m"), (1.0, 1.0, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One thing, measured several times. `of` says what it is.

    A recorded series was measured in another run, maybe on another machine: a ratio to it is only a hint.
    """

    of: str
    samples: tuple[float, ...]
    recorded: bool = False

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def lowest(self) -> float:
        """The sample that other processes disturbed least."""
        return min(self.samples)

    def document(self) -> dict[str, Any]:
        return {"of": self.of, "samples": list(self.samples), "recorded": self.recorded}

    def __str__(self) -> str:
        return f"{self.of}{' (recorded in another run)' if self.recorded else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Ours against a reference, in the same unit ('s CPU', 's', 'bytes')."""

    what: str
    unit: str
    ours: Series
    reference: Series

    @property
    def ratio(self) -> float:
        """Of the medians."""
        return self.ours.median / self.reference.median

    @property
    def lowest(self) -> float:
        """Ratio of the lowest samples: the better one on a busy machine."""
        return self.ours.lowest / self.reference.lowest

    def document(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "unit": self.unit,
            "ours": self.ours.document(),
            "reference": self.reference.document(),
            "ratio": self.ratio,
            "ratio_of_lowest": self.lowest,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A benchmark that was asked for. `why` is empty when it ran."""

    name: str
    status: Literal["ran", "not here", "failed"]
    why: str = ""
    measures: tuple[Measure, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "status": self.status,
            "why": self.why,
            "notes": list(self.notes),
            "measures": [measure.document() for measure in self.measures],
        }


def document(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """All of a run. The machine is described because ratios of wall time depend on it a little too."""
    return {
        "schema": SCHEMA,
        "machine": {
            "processors": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "load": list(os.getloadavg()),
        },
        "benchmarks": [outcome.document() for outcome in outcomes],
    }


def scaled(value: float, unit: str) -> str:
    """A value with three digits and a fitting prefix: '12.3 µs CPU', '4.56 MB'."""
    if unit == "bytes":
        return f"{value / 1e6:.3g} MB" if value < 1e9 else f"{value / 1e9:.3g} GB"
    for limit, factor, prefix in _PREFIXES:
        if 0 < value < limit * 1000:
            return f"{value * factor:.3g} {prefix}{unit}"
    return f"{value:.0f} {unit}"


def rows(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, str, str, str, str]]:
    """The table's lines, in the order of its columns."""
    for outcome in outcomes:
        if not outcome.measures:
            yield outcome.name, f"{outcome.status}: {outcome.why}", "", "", ""
        for measure in outcome.measures:
            ours, against = (
                f"{scaled(one.median, measure.unit)}, {one}" for one in (measure.ours, measure.reference)
            )
            lowest = f"{measure.lowest:.3g}" if len(measure.ours.samples) > 1 else ""
            yield f"{outcome.name}: {measure.what}", ours, against, f"{measure.ratio:.3g}", lowest


def show(outcomes: Sequence[Outcome]) -> None:
    """Print the table: boxes on a terminal, tabs elsewhere. Notes below it."""
    if sys.stdout.isatty():
        table = Table(show_edge=False)
        for name in _COLUMNS:
            table.add_column(name, justify="right" if name in ("ratio", "lowest") else "left")
        for row in rows(outcomes):
            table.add_row(*row)
        Console(markup=False, highlight=False).print(table)
    else:
        for line in (_COLUMNS, *rows(outcomes)):
            print("\t".join(line).rstrip())
    for outcome in outcomes:
        for note in outcome.notes:
            print(f"{outcome.name}: {note}")
