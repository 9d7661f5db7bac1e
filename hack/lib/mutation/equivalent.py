"""Mutants that no test can notice, each with the reason: the changed code does what the code does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mutation.result import Fate, Mutant, Result, Tally

MOST = 0.03  # of a file's mutants: with more, the code has places that it does not need


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalent:
    """One mutant of `file`: `before` and `after` as the list of survivors writes them."""

    file: str
    before: str
    after: str
    reason: str

    def fits(self, mutant: Mutant) -> bool:
        return (self.file, self.before, self.after) == (mutant.file, mutant.before, mutant.after)


EQUIVALENT: tuple[Equivalent, ...] = ()


def problems(entries: Sequence[Equivalent], file: str, mutants: Sequence[Mutant]) -> Iterator[str]:
    """What is wrong with the entries of a file that has these mutants, a sentence each."""
    own = [entry for entry in entries if entry.file == file]
    for entry in own:
        found = [mutant for mutant in mutants if entry.fits(mutant)]
        if len(found) != 1:
            lines = ", ".join(str(mutant.line) for mutant in found)
            what = f"several mutants, in the lines {lines}" if found else "no mutant any more"
            yield f"{file}: '{entry.before}  →  {entry.after}' is {what}"
    if len(own) > MOST * len(mutants):
        yield f"{file}: {len(own)} of {len(mutants)} mutants are said to be equivalent, more than {MOST:.0%}"


def noticed(entries: Sequence[Equivalent], tally: Tally) -> Iterator[str]:
    """The entries whose mutant a test did notice, a sentence each."""
    for result in tally.results:
        if result.fate is not Fate.SURVIVED and _entry_of(entries, result.mutant):
            mutant = result.mutant
            yield f"{mutant.file}:{mutant.line}: {result.by or result.fate.value}"


def marked(entries: Sequence[Equivalent], tally: Tally) -> Tally:
    """The tally with each survivor that has an entry as an equivalent mutant."""
    return replace(tally, results=tuple(_marked(entries, result) for result in tally.results))


def _marked(entries: Sequence[Equivalent], result: Result) -> Result:
    entry = _entry_of(entries, result.mutant)
    if entry is None or result.fate is not Fate.SURVIVED:
        return result
    return replace(result, fate=Fate.EQUIVALENT, reason=entry.reason)


def _entry_of(entries: Sequence[Equivalent], mutant: Mutant) -> Equivalent | None:
    return next((entry for entry in entries if entry.fits(mutant)), None)
