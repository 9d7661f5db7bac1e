"""What `hack/mutants` lists, says and reads: without a mutation."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def program(name: str) -> ModuleType:
    """A module of hack/lib, which is on no path. They import one another by the package's name."""
    package = ModuleType("mutation")
    package.__path__ = [str(ROOT / "hack/lib/mutation")]
    sys.modules.setdefault(package.__name__, package)
    return importlib.import_module(f"mutation.{name}")


listed = program("listed")
result = program("result")
equivalent = program("equivalent")

PLAN = "entrypoints/driverforge_driver/driver/plan.py"


def mutant(line: int, *, file: str = PLAN) -> object:
    text = {"before": "if a:", "after": f"if not ({line}):"}
    return result.Mutant(file=file, line=line, operator="ours/NegateCondition", source=f"{line}", **text)


def tally(*fates: object, file: str = PLAN) -> object:
    results = tuple(
        result.Result(mutant=mutant(9 - number, file=file), fate=fate, seconds=1.5, by="")
        for number, fate in enumerate(fates)
    )
    return result.Tally(file=file, baseline=2.0, results=results)


def test_every_listed_file_and_its_tests_exist() -> None:
    names = {name for file, tests in listed.FILES.items() for name in (file, *tests)}
    there = {name for name in names if (ROOT / name).is_file()}
    assert result.absent(listed.FILES, there) == []
    assert all(tests for tests in listed.FILES.values())
    assert len(set(listed.OPERATORS)) == len(listed.OPERATORS)


def test_a_listed_file_that_is_gone_is_named_once() -> None:
    files = {"a.py": ("test_x.py", "test_y.py"), "b.py": ("test_x.py",)}
    assert result.absent(files, ["a.py", "test_y.py"]) == ["test_x.py", "b.py"]


def test_the_table_has_a_line_a_file_and_a_sum() -> None:
    killed, survived, late = result.Fate.KILLED, result.Fate.SURVIVED, result.Fate.TIMED_OUT
    lines = list(result.table([tally(killed, survived, late), tally(killed, file="b.py")]))
    assert [line.split() for line in lines] == [
        ["file", "mutants", "killed", "survived", "timed", "out", "equivalent", "score", "%", "seconds"],
        [PLAN, "3", "1", "1", "1", "0", "66.7", "4"],
        ["b.py", "1", "1", "0", "0", "0", "100.0", "2"],
        ["all", "4", "2", "1", "1", "0", "75.0", "6"],
    ]
    assert len({len(line) for line in lines}) == 1


def test_one_file_needs_no_sum_and_a_file_without_mutants_lost_none() -> None:
    assert [line.split()[0] for line in result.table([tally()])] == ["file", PLAN]
    assert tally().score == 100.0  # type: ignore[attr-defined]


def test_a_sample_is_the_same_one_every_time_and_leaves_no_file_empty() -> None:
    every = {"a.py": [mutant(line, file="a.py") for line in range(30)], "b.py": [mutant(99, file="b.py")]}
    drawn = result.sampled(every, 10)
    assert sum(map(len, drawn.values())) == 10
    assert drawn == result.sampled(dict(reversed(every.items())), 10)
    assert all(drawn.values())
    assert result.sampled(every, 100) == every


def test_survivors_are_told_in_the_order_of_their_lines() -> None:
    survived, killed = result.Fate.SURVIVED, result.Fate.KILLED
    assert list(result.survivors([tally(survived, killed, survived)])) == [
        f"{PLAN}:7: ours/NegateCondition",
        "    if a:  →  if not (7):",
        f"{PLAN}:9: ours/NegateCondition",
        "    if a:  →  if not (9):",
    ]


def test_the_document_counts_and_has_every_mutant() -> None:
    document = json.loads(json.dumps(result.document([tally(result.Fate.KILLED, result.Fate.SURVIVED)])))
    (file,) = document["files"]
    counts = {name: file[name] for name in ("mutants", "killed", "survived", "timed out", "score")}
    assert counts == {"mutants": 2, "killed": 1, "survived": 1, "timed out": 0, "score": 50.0}
    assert [one["fate"] for one in file["results"]] == ["killed", "survived"]
    assert len({one["key"] for one in file["results"]}) == 2


def same_code(line: int, *, file: str = PLAN) -> object:
    return equivalent.Equivalent(file=file, before="if a:", after=f"if not ({line}):", reason="a is 9")


def test_an_equivalent_mutant_is_told_with_its_reason_and_counts_as_not_noticed() -> None:
    survived, killed = result.Fate.SURVIVED, result.Fate.KILLED
    marked = equivalent.marked([same_code(9), same_code(8, file="b.py")], tally(survived, survived, killed))
    assert [one.fate.value for one in marked.results] == ["equivalent", "survived", "killed"]
    assert list(result.survivors([marked]))[-3:] == [
        f"{PLAN}:9: ours/NegateCondition",
        "    if a:  →  if not (9):",
        "    equivalent: a is 9",
    ]
    (row,) = list(result.table([marked]))[1:]
    assert row.split() == [PLAN, "3", "1", "1", "0", "1", "33.3", "4"]


def test_an_entry_that_fits_no_mutant_or_several_is_told() -> None:
    mutants = [mutant(number) for number in range(40)]
    assert list(equivalent.problems([same_code(7)], PLAN, mutants)) == []
    assert list(equivalent.problems([same_code(40)], PLAN, mutants)) == [
        f"{PLAN}: 'if a:  →  if not (40):' is no mutant any more"
    ]
    assert list(equivalent.problems([same_code(7)], PLAN, [*mutants, mutant(7)])) == [
        f"{PLAN}: 'if a:  →  if not (7):' is several mutants, in the lines 7, 7"
    ]
    assert list(equivalent.problems([same_code(40)], "b.py", mutants)) == []


def test_more_equivalent_mutants_than_three_in_a_hundred_are_too_many() -> None:
    mutants = [mutant(number) for number in range(66)]
    assert list(equivalent.problems([same_code(1)], PLAN, mutants)) == []
    assert list(equivalent.problems([same_code(1), same_code(2)], PLAN, mutants)) == [
        f"{PLAN}: 2 of 66 mutants are said to be equivalent, more than 3%"
    ]


def test_an_equivalent_mutant_that_a_test_noticed_is_told_with_the_test() -> None:
    noticed = result.Result(mutant=mutant(9), fate=result.Fate.KILLED, seconds=1.0, by="test_x")
    found = result.Tally(file=PLAN, baseline=1.0, results=(noticed,))
    assert list(equivalent.noticed([same_code(9)], found)) == [f"{PLAN}:9: test_x"]
    assert list(equivalent.noticed([same_code(9)], tally(result.Fate.SURVIVED))) == []
    assert list(equivalent.noticed([same_code(8)], found)) == []


def test_every_equivalent_mutant_changes_a_line_that_is_there() -> None:
    """Whether it is a mutant yet, only `hack/mutants` can tell."""
    for entry in equivalent.EQUIVALENT:
        text = " ".join((ROOT / entry.file).read_text().split())
        assert entry.file in listed.FILES
        assert entry.before in text
        assert entry.reason


@pytest.mark.parametrize(
    ("words", "files"),
    [
        ([], ["a/plan.py", "b/plan.py", "a/loop.py"]),
        (["loop.py", "b/plan.py"], ["b/plan.py", "a/loop.py"]),
        (["a/loop.py"], ["a/loop.py"]),
    ],
)
def test_files_are_chosen_by_the_end_of_their_path(words: list[str], files: list[str]) -> None:
    assert result.chosen(words, ["a/plan.py", "b/plan.py", "a/loop.py"]) == (files, [])


def test_a_word_that_names_no_file_or_several_is_told() -> None:
    _, problems = result.chosen(["plan.py", "an.py"], ["a/plan.py", "b/plan.py"])
    assert problems == [
        "plan.py is the name of several files: a/plan.py, b/plan.py",
        "an.py is none of the files that are mutated",
    ]


def test_changed_lines_are_those_of_the_new_file() -> None:
    diff = """diff --git a/x.py b/x.py
--- a/x.py
+++ b/x.py
@@ -3 +3 @@ def f():
-a
+b
@@ -9,2 +8,0 @@
-gone
-gone
@@ -20,0 +19,3 @@
+1
+2
+3
"""
    assert result.changed_lines(diff) == {"x.py": {3, 19, 20, 21}}


def test_a_difference_is_told_on_one_line() -> None:
    before = "def f():\n    call(\n        1,\n    )\n    return 2\n"
    after = "def f():\n    pass\n    return 2\n"
    assert result.difference(before, after) == ("call( 1, )", "pass")


def test_each_exception_that_is_caught_is_another_mutant() -> None:
    pytest.importorskip("cosmic_ray", reason="hack/mutants installs cosmic-ray")
    clauses = (
        "except OSError as error:",
        "except a.Error:",
        "except (a.Error, ValueError):",
        "except (OSError):",
    )
    found = {
        clause: [
            one.after
            for one in program("operators").mutants(
                "x.py", f"try:\n    f()\n{clause}\n    pass\n", ("ours/ReplaceException",)
            )
        ]
        for clause in (*clauses, "except:")
    }
    other = "CosmicRayTestingException"
    assert found == {
        clauses[0]: [f"except {other} as error:"],
        clauses[1]: [f"except {other}:"],
        clauses[2]: [f"except ({other}, ValueError):", f"except (a.Error, {other}):"],
        clauses[3]: [f"except ({other}):"],
        "except:": [],
    }


def test_our_operators_change_what_they_say() -> None:
    pytest.importorskip("cosmic_ray", reason="hack/mutants installs cosmic-ray")
    source = """@keep(slots=True)
def f(a: int | None) -> bool | None:
    if a > 1 and not a:
        call(a)
    elif a:
        log.info(a)
    return [b for b in a if b] if a in c else d
"""
    found = [
        (one.line, one.operator, one.after)
        for one in program("operators").mutants("x.py", source, listed.OPERATORS[:3])
    ]
    assert found == [
        (3, "ours/NegateCondition", "if not (a > 1 and not a):"),
        (5, "ours/NegateCondition", "elif not (a):"),
        (7, "ours/NegateCondition", "return [b for b in a if not (b)] if a in c else d"),
        (7, "ours/SwapMembership", "return [b for b in a if b] if a not in c else d"),
        (4, "ours/DropCall", "pass"),
    ]
