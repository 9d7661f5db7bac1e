"""The recorded cases of NVIDIA's toolkit: our documents equal upstream's, or the case is a declared
difference.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from driverforge_node.runtime.backends.distributions import BACKENDS
from support.upstream.toolkitcases import Case, Deviation, counted, deviations, load, play, table

DECLARED = {case: group for group in deviations() for case in group.cases}
CASES = load("runtime", "configure")
COUNTS = {"runtime": 102, "configure": 15}
DOCS = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"


def names(cases: list[Case]) -> list[str]:
    return [case["id"] for case in cases]


CHANGES = [case for case in CASES if case["operation"] in ("add", "setup", "nvidia-ctk-runtime-configure")]


def test_every_recorded_case_is_here_once() -> None:
    assert Counter(name.partition("/")[0] for name in set(names(CASES))) == COUNTS


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_the_documents_equal_upstreams_or_the_difference_is_declared(case: Case) -> None:
    played = play(case)
    declared = DECLARED.get(case["id"])
    if declared is None:
        assert played.ours == played.upstream, played.refused
    else:
        assert_differs(declared, {"/".join(path) for path in played.differing})


def assert_differs(declared: Deviation, differing: set[str]) -> None:
    assert differing, "this case no longer differs: take it out of deviations.json"
    unexplained = {path for path in differing if not any(key in path.split("/") for key in declared.differs)}
    assert not unexplained


@pytest.mark.parametrize("case", CHANGES, ids=names(CHANGES))
def test_what_was_applied_is_undone_to_the_byte(case: Case) -> None:
    """Also when somebody wrote a comment or a key behind it since: only that is left of the difference."""
    played = play(case)
    for path, written in played.after.items():
        original = played.before.get(path)
        if played.where is None or written == original:
            continue
        undone = BACKENDS[played.where.kind].undone(path, original=original, written=written, current=written)
        assert undone.data == original
        assert not undone.kept
        if written is not None and not path.endswith(".json"):
            later = BACKENDS[played.where.kind].undone(
                path, original=original, written=written, current=written + b"# later\n"
            )
            assert later.data == (original or b"") + b"# later\n"


def test_declared_differences_are_of_cases_that_exist() -> None:
    known = {case for case in DECLARED if case.partition("/")[0] in COUNTS}
    assert known <= set(names(CASES))
    assert len(DECLARED) == sum(len(group.cases) for group in deviations())


def test_the_documentation_has_every_declared_difference() -> None:
    assert table() in DOCS.read_text(), f"docs/compatibility.md wants this table:\n{table()}"


def test_the_documentation_counts_what_is_equal_and_what_is_declared() -> None:
    assert "| the core: these three | 144 |" in counted()
    assert counted() in DOCS.read_text(), f"docs/compatibility.md wants this table:\n{counted()}"
