"""What came out of test tiers, read from pytest's reports, and the table that a run ends with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

SLOWEST = 20


@dataclass(slots=True)
class Row:
    """What came out of one tier."""

    tier: str
    seconds: float = 0.0
    budget: float = 0.0  # seconds; 0 is no limit
    workers: int = 1  # tests that run at the same time
    passed: int = 0
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # reason → number of tests
    failures: list[str] = field(default_factory=list)  # names, of tests that failed
    unsteady: list[str] = field(default_factory=list)  # names, of tests that failed and then passed
    durations: list[tuple[float, str]] = field(default_factory=list)  # seconds and name of each test that ran
    notes: list[str] = field(default_factory=list)

    def read(self, report: Path) -> None:
        """Add the tests of a report (pytest's xunit2)."""
        for case in ET.parse(report).iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}"
            kinds = {child.tag: child for child in case}
            if "skipped" not in kinds:
                self.durations.append((float(case.get("time", 0)), name))
            if "failure" in kinds or "error" in kinds:
                self.failed += 1
                self.failures.append(name)
            elif "skipped" in kinds:
                self.skipped[kinds["skipped"].get("message", "") or "no reason given"] += 1
            else:
                self.passed += 1

    def repeated(self, again: Row) -> None:
        """Take in the second try of this tier's failures.

        If all pass then, they count as passed and as unsteady.
        """
        self.seconds += again.seconds
        if not again.failed and again.passed >= len(self.failures):
            self.passed += len(self.failures)
            self.unsteady, self.failures, self.failed = self.failures, [], 0

    def over_budget(self) -> tuple[tuple[float, str], ...]:
        """The dearest tests, about as many as it would take to be within the budget: seconds, name."""
        excess = (self.seconds - self.budget) * self.workers
        found: list[tuple[float, str]] = []
        for seconds, name in sorted(self.durations, reverse=True):
            if not self.budget or sum(one for one, _ in found) >= excess:
                break
            found.append((seconds, name))
        return tuple(found)


def table(rows: Sequence[Row]) -> Iterator[str]:
    """The lines that end a run; the last one, alone, is the sum."""
    yield f"{'tier':12} {'seconds':>8} {'passed':>7} {'failed':>7} {'skipped':>8}"
    for row in rows:
        yield f"{row.tier:12} {row.seconds:8.1f} {row.passed:7} {row.failed:7} {row.skipped.total():8}"
        for note in row.notes:
            yield f"{'':12} {note}"
        for reason, count in row.skipped.most_common():
            yield f"{'':12} {count} skipped: {reason}"
        if 0 < row.budget < row.seconds:
            yield f"{'':12} over its budget of {row.budget:.0f} s; its dearest tests:"
            yield from (f"{'':12} {seconds:8.1f} s  {name}" for seconds, name in row.over_budget())
        for name in row.unsteady:
            yield f"{'':12} unsteady, failed and then passed: {name}"
    ran = sorted(
        ((seconds, row.tier, name) for row in rows for seconds, name in row.durations), reverse=True
    )[:SLOWEST]
    if ran:
        yield ""
        yield f"the slowest of them, {len(ran)}:"
        yield from (f"{seconds:8.1f} s  {tier:10} {name}" for seconds, tier, name in ran)
    yield ""
    yield f"{sum(len(row.unsteady) for row in rows)} failed and then passed, alone"
    yield f"{sum(row.seconds for row in rows):.0f} s in all"
    yield ""
    passed, failed, skipped = (
        sum(count)
        for count in zip(
            (0, 0, 0), *((row.passed, row.failed, row.skipped.total()) for row in rows), strict=True
        )
    )
    yield f"{passed} passed, {failed} failed, {skipped} skipped"
