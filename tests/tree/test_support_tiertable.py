"""The table that a run of the tests ends with."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from support.tiertable import Row, table

REPORT = """<testsuites><testsuite>
<testcase classname="tests.vm.test_a" name="test_one" time="12.5" />
<testcase classname="tests.vm.test_a" name="test_two" time="3.25">\
<failure message="no">all of it</failure></testcase>
<testcase classname="tests.vm.test_b" name="test_three" time="0.1">\
<error message="no">all of it</error></testcase>
<testcase classname="tests.vm.test_b" name="test_four" time="0.001">\
<skipped message="no go here" /></testcase>
<testcase classname="tests.vm.test_b" name="test_five" time="0.001">\
<skipped message="no go here" /></testcase>
</testsuite></testsuites>
"""


def vm(folder: Path) -> Row:
    (folder / "vm.xml").write_text(REPORT)
    row = Row(tier="vm", seconds=16.0)
    row.read(folder / "vm.xml")
    return row


def test_a_report_is_counted_by_outcome_and_skips_by_reason(tmp_path: Path) -> None:
    row = vm(tmp_path)
    assert (row.passed, row.failed, row.skipped) == (1, 2, Counter({"no go here": 2}))
    assert row.failures == ["tests.vm.test_a.test_two", "tests.vm.test_b.test_three"]


def test_the_table_names_skips_the_slowest_and_what_was_tried_again(tmp_path: Path) -> None:
    row = vm(tmp_path)
    row.notes.append("guests: TCG, software emulation (no device)")
    row.repeated(Row(tier="vm again", seconds=4.0, passed=2))
    assert list(table([Row(tier="lint", seconds=1.0, passed=6), row])) == [
        "tier          seconds  passed  failed  skipped",
        "lint              1.0       6       0        0",
        "vm               20.0       3       0        2",
        "             guests: TCG, software emulation (no device)",
        "             2 skipped: no go here",
        "             unsteady, failed and then passed: tests.vm.test_a.test_two",
        "             unsteady, failed and then passed: tests.vm.test_b.test_three",
        "",
        "the slowest of them, 3:",
        "    12.5 s  vm         tests.vm.test_a.test_one",
        "     3.2 s  vm         tests.vm.test_a.test_two",
        "     0.1 s  vm         tests.vm.test_b.test_three",
        "",
        "2 failed and then passed, alone",
        "21 s in all",
        "",
        "9 passed, 0 failed, 2 skipped",
    ]


def test_a_tier_over_its_budget_names_its_dearest_tests(tmp_path: Path) -> None:
    row = vm(tmp_path)
    row.seconds, row.budget, row.workers = 16.0, 10.0, 2
    # six seconds of two workers
    assert row.over_budget() == ((12.5, "tests.vm.test_a.test_one"),)
    lines = list(table([row]))
    assert "             over its budget of 10 s; its dearest tests:" in lines
    assert "                 12.5 s  tests.vm.test_a.test_one" in lines
    row.budget = 16.0
    assert not any("budget" in line for line in table([row]))
    row.budget = 0.0
    assert not any("budget" in line for line in table([row]))


def test_a_second_failure_stays_one(tmp_path: Path) -> None:
    row = vm(tmp_path)
    row.repeated(Row(tier="vm again", passed=1, failed=1))
    assert (row.passed, row.failed, row.unsteady) == (1, 2, [])
    assert list(table([row]))[-1] == "1 passed, 2 failed, 2 skipped"


def test_only_twenty_of_many_are_named_and_a_run_of_nothing_names_none() -> None:
    many = Row(tier="unit", durations=[(float(number), f"test_{number}") for number in range(30)])
    lines = list(table([many]))
    assert sum(" s  unit " in line for line in lines) == 20
    assert "    29.0 s  unit       test_29" in lines
    assert list(table([]))[-1] == "0 passed, 0 failed, 0 skipped"
