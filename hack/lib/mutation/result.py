"""What a mutation run says: mutants and their fates, as a table for people and JSON for machines. Pure."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Any

SCHEMA = 1
COLUMNS = ("file", "mutants", "killed", "survived", "timed out", "equivalent", "score %", "seconds")


class Fate(Enum):
    KILLED = "killed"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"
    EQUIVALENT = "equivalent"  # a survivor that is known to be the same code


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of one file.

    `before` and `after` are the lines that differ, as one line each; `source` is the whole text.
    """

    file: str
    line: int
    operator: str
    before: str
    after: str
    source: str = field(repr=False)

    @property
    def key(self) -> str:
        """Tells the mutants of one file apart."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a mutant, in how many seconds.

    `by` is the test that failed, '' where none did or none was reached; `reason` is why none can.
    """

    mutant: Mutant
    fate: Fate
    seconds: float
    by: str = ""
    reason: str = ""

    def document(self) -> dict[str, Any]:
        return {
            "key": self.mutant.key,
            "line": self.mutant.line,
            "operator": self.mutant.operator,
            "before": self.mutant.before,
            "after": self.mutant.after,
            "fate": self.fate.value,
            "by": self.by,
            "reason": self.reason,
            "seconds": round(self.seconds, 2),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """All results of one file. `baseline` is the time of its tests without a mutation, in seconds."""

    file: str
    baseline: float
    results: tuple[Result, ...]

    def count(self, fate: Fate) -> int:
        return sum(result.fate is fate for result in self.results)

    @property
    def score(self) -> float:
        """Percent of the mutants that some test noticed, by failing or by not ending. 100 where none was."""
        unnoticed = self.count(Fate.SURVIVED) + self.count(Fate.EQUIVALENT)
        return 100 * (1 - unnoticed / len(self.results)) if self.results else 100.0

    @property
    def seconds(self) -> float:
        """Of all its mutants, one after another."""
        return sum(result.seconds for result in self.results)

    def document(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "baseline": round(self.baseline, 2),
            "mutants": len(self.results),
            **{fate.value: self.count(fate) for fate in Fate},
            "score": round(self.score, 1),
            "seconds": round(self.seconds, 1),
            "results": [result.document() for result in self.results],
        }


def document(tallies: Sequence[Tally]) -> dict[str, Any]:
    return {"schema": SCHEMA, "files": [tally.document() for tally in tallies]}


def table(tallies: Sequence[Tally]) -> Iterator[str]:
    """The table's lines: its columns' names, a line a file, and a sum where there are several files."""
    whole = Tally(file="all", baseline=0.0, results=tuple(one for tally in tallies for one in tally.results))
    rows = (
        [_row(tally) for tally in (*tallies, whole)] if len(tallies) > 1 else [_row(one) for one in tallies]
    )
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    for file, *figures in (COLUMNS, *rows):
        cells = (figure.rjust(width) for figure, width in zip(figures, widths[1:], strict=True))
        yield "  ".join((file.ljust(widths[0]), *cells))


def _row(tally: Tally) -> tuple[str, ...]:
    counts = (str(tally.count(fate)) for fate in Fate)
    return tally.file, str(len(tally.results)), *counts, f"{tally.score:.1f}", f"{tally.seconds:.0f}"


def survivors(tallies: Sequence[Tally]) -> Iterator[str]:
    """Each mutant that no test noticed: where and which operator, then the change.

    Below an equivalent one, the reason.
    """
    for tally in tallies:
        for result in sorted(tally.results, key=lambda one: one.mutant.line):
            if result.fate in (Fate.SURVIVED, Fate.EQUIVALENT):
                mutant = result.mutant
                yield f"{mutant.file}:{mutant.line}: {mutant.operator}"
                yield f"    {mutant.before}  →  {mutant.after}"
            if result.fate is Fate.EQUIVALENT:
                yield f"    equivalent: {result.reason}"


def difference(before: str, after: str) -> tuple[str, str]:
    """The lines that differ between two texts, as one line each, without indentation."""
    old, new = before.splitlines(), after.splitlines()
    changed = [
        (old[first:last], new[start:end])
        for tag, first, last, start, end in difflib.SequenceMatcher(
            a=old, b=new, autojunk=False
        ).get_opcodes()
        if tag != "equal"
    ]
    sides = ([line.strip() for pair in changed for line in pair[side]] for side in (0, 1))
    left, right = (" ".join(side) for side in sides)
    return left, right


def chosen(words: Sequence[str], files: Collection[str]) -> tuple[list[str], list[str]]:
    """The files that the words name, in the order of `files`; a sentence for each word that names not one.

    A word is a file's path or the end of it, from a name on: 'plan.py', 'driver/plan.py'.
    """
    found, problems = set(), []
    for word in words:
        named = [file for file in files if f"/{file}".endswith(f"/{word}")]
        if len(named) == 1:
            found.add(named[0])
        elif named:
            problems.append(f"{word} is the name of several files: {', '.join(named)}")
        else:
            problems.append(f"{word} is none of the files that are mutated")
    return [file for file in files if file in found or not words], problems


def sampled(every: Mapping[str, Sequence[Mutant]], count: int) -> dict[str, list[Mutant]]:
    """So many of the mutants, the same ones for the same sources; without the files that have none."""
    drawn = {one.key for one in sorted(chain(*every.values()), key=lambda one: (one.key, one.file))[:count]}
    kept = {file: [one for one in found if one.key in drawn] for file, found in every.items()}
    return {file: found for file, found in kept.items() if found}


def absent(files: Mapping[str, Sequence[str]], there: Collection[str]) -> list[str]:
    """Listed files and test modules that are not among those of the tree, each once."""
    named = dict.fromkeys(name for file, tests in files.items() for name in (file, *tests))
    return [name for name in named if name not in there]


def changed_lines(diff: str) -> dict[str, set[int]]:
    """File → numbers of the new or changed lines in it, from the output of `git diff --unified=0`."""
    lines: dict[str, set[int]] = {}
    file = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ ").removeprefix("b/")
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(match[1]), int(match[2] or 1)
            lines.setdefault(file, set()).update(range(first, first + count))
    return lines
