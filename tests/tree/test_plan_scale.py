"""`driverforge plan` does for a cell of a large plan what it does for one of a small plan: little.

Work is counted, not timed: calls of functions, as the interpreter's own profiler sees them. A walk inside one
built-in function is one call; `hack/bench plan` measures that, and its locks are the ones here.
"""

from __future__ import annotations

import cProfile
from collections.abc import Callable
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.lock.file import dump_lock
from driverforge_build.matrix import load_matrix

ROOT = Path(__file__).parents[2]
# 100,000 cells may cost 15 times the CPU of 100, the start of both counted. They cost 11.6 times as much when
# a cell took 165 calls; the cells' share, and that alone, grows with their calls: 165 * (15 - 1) / (11.6 - 1)
CALLS = 218
# since Python 3.12 they are no functions
INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")


@pytest.fixture
def calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[int], tuple[int, int]]:
    """Plan about so many cells; how many there were, and all calls together."""
    monkeypatch.syspath_prepend(ROOT / "hack/lib")
    from bench.benchmarks.plan import SYSTEM, one_system, synthetic

    matrix = one_system(load_matrix())

    def calls(cells: int) -> tuple[int, int]:
        (tmp_path / "l.json").write_text(dump_lock(synthetic(matrix, cells)))
        words = ["plan", "--lock", str(tmp_path / "l.json"), "--select", f"{SYSTEM}-*"]
        profile = cProfile.Profile()
        profile.runcall(cli.run, words)
        planned = capsys.readouterr().out.count(f"{SYSTEM}-")
        counted = (
            entry.callcount
            for entry in profile.getstats()
            if isinstance(entry.code, str) or entry.code.co_name not in INLINED
        )
        return planned, sum(counted)

    return calls


def test_a_cell_takes_as_many_calls_however_many_there_are(calls: Callable[[int], tuple[int, int]]) -> None:
    # the first imports modules, and does not count
    few, more, many = [calls(cells) for cells in (100, 100, 200, 1100)][1:]

    def a_cell(less: tuple[int, int], larger: tuple[int, int]) -> float:
        return (larger[1] - less[1]) / (larger[0] - less[0])

    assert many[0] >= 1000
    assert a_cell(more, many) < 1.1 * a_cell(few, more)
    assert a_cell(more, many) < CALLS
