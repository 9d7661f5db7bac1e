"""What became of each cell, as one value that JUnit and the step summary are made from.

Both are made from the very documents that `--json` prints.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from driverforge_build.documents.failures import Failure
from driverforge_build.documents.images import BuildCell
from driverforge_build.documents.plans import PlanCell
from driverforge_build.junit import JUnitCase, Outcome, Suite
from driverforge_core.cell import JIT, CellId
from driverforge_core.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cell. `word` is what happened in a word or two, `message` the sentence, `text` the evidence."""

    cell: str
    word: str
    outcome: Outcome
    message: str = ""
    text: str = ""
    seconds: float = 0.0

    @property
    def group(self) -> str:
        """The cell without its kernel: 'debian12-amd64-535.261.03'."""
        parsed = self.parsed
        return f"{parsed.os.key}-{parsed.arch}-{parsed.driver}" if parsed else self.cell

    @property
    def kernel(self) -> str:
        parsed = self.parsed
        return str(parsed.kernel or JIT) if parsed else ""

    @property
    def parsed(self) -> CellId | None:
        """None for an image that is no driver's, the toolkit's."""
        try:
            return CellId.parse(self.cell)
        except InputError:
            return None


_OF_VERDICT = {
    "build": Outcome.PASSED,
    "exists": Outcome.PASSED,
    "blocked": Outcome.SKIPPED,
    "unknown": Outcome.SKIPPED,
}


def plan_cases(cells: Iterable[PlanCell], unanswered: Collection[str] = ()) -> Iterator[Case]:
    """The cases of a plan. `unanswered` are the cells about which the registry did not answer."""
    for cell in cells:
        outcome = Outcome.ERROR if cell["cell"] in unanswered else _OF_VERDICT[cell["verdict"]]
        yield _judged(
            cell, outcome, [*cell["evidence"], *([f"to run: {cell['run']}"] if cell["run"] else [])]
        )


def build_cases(
    cells: Iterable[BuildCell], *, unwanted: Collection[str] = (), unanswered: Collection[str] = ()
) -> Iterator[Case]:
    """The cases of a build. `unwanted` are cells whose verdict fails the run (--fail-on)."""
    for cell in cells:
        if cell["result"] is not None:
            yield _built(cell)
        elif cell["cell"] in unwanted:
            yield _judged(cell, Outcome.FAILED, [])
        elif cell["cell"] in unanswered:
            yield _judged(cell, Outcome.ERROR, [])
        else:
            yield _judged(cell, _OF_VERDICT[cell["verdict"]], [])


def _judged(cell: PlanCell | BuildCell, outcome: Outcome, evidence: list[str]) -> Case:
    return Case(
        cell=cell["cell"],
        word=cell["verdict"],
        outcome=outcome,
        message=cell["reason"],
        text="\n".join(evidence),
    )


def _built(cell: BuildCell) -> Case:
    result, error, pushed = cell["result"], cell["error"], cell["pushed"]
    assert result is not None
    lines = [
        *([f"image: {pushed['reference'] if pushed else cell['reference']}"] if not error else []),
        *([f"digest: {pushed['digest']}"] if pushed else []),
        *([f"log: {cell['log']}"] if cell["log"] else []),
        *(f"tried again after {one['seconds']:.0f} s: {one['reason']}" for one in cell["attempts"]),
    ]
    return Case(
        cell=cell["cell"],
        word="not begun" if result == "skipped" else result,
        outcome={"failed": Outcome.FAILED, "skipped": Outcome.SKIPPED}.get(result, Outcome.PASSED),
        message=error["brief"] if error else "",
        text="\n".join([*(_evidence(error) if error else ()), *lines]),
        seconds=cell["seconds"] or 0.0,
    )


def _evidence(error: Failure) -> Iterator[str]:
    yield from error["details"]
    if error["resolution"]:
        yield f"next: {error['resolution']}"


def suites(cases: Iterable[Case]) -> list[Suite]:
    """For JUnit: a suite for the images of a driver on an OS, a case a cell."""
    by_group = dict[str, list[JUnitCase]]()
    for case in cases:
        by_group.setdefault(case.group, []).append(
            JUnitCase(
                name=case.cell,
                outcome=case.outcome,
                word=case.word,
                message=case.message,
                text=case.text,
                seconds=case.seconds,
            )
        )
    return [Suite(name=group, cases=mine) for group, mine in by_group.items()]
