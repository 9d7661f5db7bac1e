"""The recorded cases of NVIDIA's toolkit: our documents equal upstream's, or the case is a declared
difference.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from driverforge_toolkit.runtime.backends.distributions import BACKENDS
from support.fakes.runtimemodel import OnBytes
from support.upstream.toolkitcases import CORE, Case, counted, deviations, load, play, table

DECLARED = {case: group for group in deviations() for case in group.cases}
CASES = load("runtime", "configure")
COUNTS = {"runtime": 102, "configure": 15, "installer": 27}
DOCS = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"


def names(cases: list[Case]) -> list[str]:
    return [case["id"] for case in cases]


CHANGES = [case for case in CASES if case["operation"] in ("add", "setup", "nvidia-ctk-runtime-configure")]


def test_all_144_recorded_cases_are_here_once_and_played_or_declared() -> None:
    """The installer's are played in tests/tree/test_toolkit_conformance."""
    ids = names(load(*CORE))
    assert Counter(name.partition("/")[0] for name in set(ids)) == COUNTS
    assert len(ids) == sum(COUNTS.values()) == 144


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_users_get_what_upstreams_get_or_the_difference_is_declared(case: Case) -> None:
    played, declared = play(case), DECLARED.get(case["id"])
    if declared is None:
        assert played.refused is None
        assert played.compared
        assert [each for each in played.compared if each.differing] == []
        return
    if declared.refused:
        assert played.refused is not None, "this case is no longer refused: take it out of deviations.json"
        assert declared.refused in played.refused.render()
        return
    assert played.differing, "this case no longer differs: take it out of deviations.json"
    assert not {path for path in played.differing if not set(declared.differs) & set(path)}


def test_each_way_in_which_a_user_gets_files_is_compared() -> None:
    ways = Counter(each.what for case in CASES for each in play(case).compared)
    # 7 clean-ups are docker's, of which nobody says what was in the file before
    assert (ways["runtime revert"], ways["runtime revert --strip"], ways["containerd 2.1"]) == (19, 26, 28)


def test_each_key_that_is_declared_differs_in_a_case() -> None:
    for group in deviations():
        here = [case for case in CASES if case["id"] in group.cases]
        found = {key for case in here for path in play(case).differing for key in path}
        assert not here or set(group.differs) <= found, group.upstream


@pytest.mark.parametrize("case", CHANGES, ids=names(CHANGES))
def test_what_was_applied_is_undone_to_the_byte(case: Case) -> None:
    """Also when somebody wrote a comment or a key behind it since: only that is left of the difference."""
    played = play(case)
    for path, written in played.after.items():
        original = played.before.get(path)
        if played.where is None or written == original:
            continue
        backend = OnBytes(BACKENDS[played.where.kind])
        undone = backend.undone(path, original=original, written=written, current=written)
        assert undone.data == original
        assert not undone.kept
        if written is not None and not path.endswith(".json"):
            later = backend.undone(path, original=original, written=written, current=written + b"# later\n")
            assert later.data == (original or b"") + b"# later\n"


def test_declared_differences_are_of_cases_that_exist_and_have_one_reason_each() -> None:
    known = {case for case in DECLARED if case.partition("/")[0] in COUNTS}
    assert known <= set(names(load(*CORE)))
    assert len(DECLARED) == sum(len(group.cases) for group in deviations())


def test_the_documentation_has_every_declared_difference() -> None:
    assert table() in DOCS.read_text(), f"docs/compatibility.md wants this table:\n{table()}"


def test_the_documentation_counts_what_is_equal_and_what_is_declared() -> None:
    assert "| the core: these three | 144 |" in counted()
    assert counted() in DOCS.read_text(), f"docs/compatibility.md wants this table:\n{counted()}"
