"""RPM's dependencies: relations without a release, rich ones, and what they make of a closure."""

from __future__ import annotations

from functools import partial

import pytest

from driverforge_build.discover.closure import closure
from driverforge_build.discover.offered import PackageIndex, Requirement
from driverforge_build.discover.rpm.entries import add_records, new_index, parse_rich
from driverforge_build.discover.rpm.primary import Record
from driverforge_core.errors import InputError

A, B, C, D = (Requirement(name=name) for name in "abcd")


def record(
    name: str,
    *requires: str,
    version: str = "1-1",
    provides: tuple[str, ...] = (),
    rich: tuple[str, ...] = (),
) -> Record:
    return Record(
        name=name,
        version=version,
        arch="x86_64",
        path=f"{name}.rpm",
        size=1,
        requires=[Requirement(name=one) for one in requires],
        provides=[Requirement(name=one) for one in provides],
        rich=list(rich),
    )


def index(*records: Record) -> PackageIndex:
    made = new_index()
    add_records(made, records, repository="r")
    return made


def names(*roots: str, of: PackageIndex) -> list[str]:
    return [package.name for package in closure(of, [(Requirement(name=root),) for root in roots])]


@pytest.mark.parametrize(
    ("offered", "relation", "wanted", "fits"),
    [
        ("1.2-3", "=", "1.2", True),
        ("1.2-3", "=", "1.2-4", False),
        ("3:580.1-1", ">=", "590", True),
        ("580.1-1", ">=", "3:1", False),
        ("1.0~rc1-1", "<<", "1.0", True),
        ("1.0^git1-1", ">>", "1.0", True),
        ("1.2-3", "<=", "1.2-3", True),
    ],
)
def test_a_relation_without_a_release_does_not_ask_for_one(
    offered: str, relation: str, wanted: str, fits: bool
) -> None:
    requirement = Requirement(name="x", relation=relation, version=wanted)
    assert new_index().admits(requirement, offered) is fits


def test_alternatives() -> None:
    assert parse_rich("(a or b or c)") == (((A, B, C),), ())
    assert parse_rich("((a or b) and c)") == (((A, B), (C,)), ())


def test_a_capability_may_have_parentheses_of_its_own() -> None:
    clauses, _ = parse_rich("(libc.so.6(GLIBC_2.34)(64bit) and python(abi) = 3.12)")
    assert clauses == (
        (Requirement(name="libc.so.6(GLIBC_2.34)(64bit)"),),
        (Requirement(name="python(abi)", relation="=", version="3.12"),),
    )


def test_a_condition_and_its_otherwise() -> None:
    clauses, (condition,) = parse_rich("(a if (b or c) else d)")
    assert clauses == ()
    assert (condition.when, condition.then, condition.otherwise) == ((B, C), ((A,),), ((D,),))


@pytest.mark.parametrize("text", ["(a", "(a or", "()", "(a or b) c", "(a =)", "(" * 5000])
def test_what_is_no_dependency(text: str) -> None:
    with pytest.raises(InputError, match="is not a dependency"):
        parse_rich(text)


CONDITIONAL = partial(record, "gcc", rich=("(annobin if config)",))


def test_what_a_condition_asks_for_comes_only_where_it_holds() -> None:
    of = index(CONDITIONAL(), record("annobin"), record("config"), record("brings", "config"))
    assert names("gcc", of=of) == ["gcc"]
    assert names("gcc", "brings", of=of) == ["annobin", "brings", "config", "gcc"]


def test_a_condition_may_hold_because_of_another() -> None:
    of = index(
        record("a", rich=("(b if a)",)), record("b", rich=("(c if b else d)",)), record("c"), record("d")
    )
    assert names("a", of=of) == ["a", "b", "c"]


def test_what_is_wanted_where_something_is_absent() -> None:
    of = index(record("a", rich=("(b if c else d)",)), record("b"), record("c"), record("d"))
    assert names("a", of=of) == ["a", "d"]
    assert names("a", "c", of=of) == ["a", "b", "c"]


def test_a_condition_counts_what_is_given() -> None:
    of = index(record("a", rich=("(b if c)",)), record("b"), record("c"))
    given = closure(of, [(C,)])
    assert [package.name for package in closure(of, [(A,)], given=given)] == ["a", "b"]


def test_what_a_package_provides_itself_is_not_looked_for_elsewhere() -> None:
    of = index(record("a", "config(a)", "b", provides=("config(a)",)), record("b"))
    assert names("a", of=of) == ["a", "b"]


def test_files_are_provided_by_who_has_them() -> None:
    shell = record("bash")
    shell.files.append("/usr/bin/sh")
    assert names("a", of=index(record("a", "/usr/bin/sh"), shell)) == ["a", "bash"]
