"""Dependency fields, and the closure over a merged index."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_build.discover.apt.stanzas import add_stanzas, new_index, parse_clause, parse_clauses
from driverforge_build.discover.closure import Unsatisfiable, closure
from driverforge_build.discover.offered import PackageIndex, Requirement
from driverforge_core import debversion
from driverforge_core.errors import InputError

versions = st.from_regex(r"[0-9]\.[0-9](-[0-9])?", fullmatch=True)


def stanza(name: str, version: str = "1", **fields: str) -> bytes:
    head = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\n"
    body = "".join(f"{field.replace('_', '-')}: {value}\n" for field, value in fields.items())
    return f"{head}{body}Filename: pool/{name}_{version}.deb\nSize: 1\nSHA256: {'0' * 64}\n".encode()


def catalogue(*stanzas: bytes, more: tuple[bytes, ...] = (), preference: int = 500) -> PackageIndex:
    """One suite `a`, and a second one `b` of the given preference."""
    found = new_index()
    add_stanzas(found, stanzas, suite="a")
    add_stanzas(found, more, suite="b", preference=preference)
    return found


def names(*packages: str, of: PackageIndex, given: tuple[str, ...] = (), upstream: str = "") -> list[str]:
    there = [found for name in given for found in of.versions(name)[:1]]
    chosen = closure(of, [parse_clause(name) for name in packages], given=there, upstream=upstream)
    return [f"{package.name}={package.version}" for package in chosen]


def test_clauses() -> None:
    assert parse_clauses("libc6 (>= 2.34), gcc:any | c-compiler,\n debconf (>= 0.5) | debconf-2.0") == (
        (Requirement(name="libc6", relation=">=", version="2.34"),),
        (Requirement(name="gcc"), Requirement(name="c-compiler")),
        (Requirement(name="debconf", relation=">=", version="0.5"), Requirement(name="debconf-2.0")),
    )
    assert parse_clauses("") == ()


@pytest.mark.parametrize("text", ["libc6 (> 2)", "libc6 [amd64]", "a b", "libc6 (= )"])
def test_what_is_no_dependency(text: str) -> None:
    with pytest.raises(InputError):
        parse_clause(text)


@given(versions, versions, st.sampled_from(["<<", "<=", "=", ">=", ">>"]))
def test_relations_follow_the_order_of_versions(left: str, right: str, relation: str) -> None:
    order = debversion.compare(left, right)
    expected = {"<<": order < 0, "<=": order <= 0, "=": order == 0, ">=": order >= 0, ">>": order > 0}[
        relation
    ]
    assert new_index().admits(Requirement(name="x", relation=relation, version=right), left) is expected


def test_dependencies_of_dependencies_and_circles() -> None:
    index = catalogue(
        stanza("a", Depends="b"), stanza("b", Pre_Depends="c"), stanza("c", Depends="a"), stanza("unused")
    )
    assert names("a", of=index) == ["a=1", "b=1", "c=1"]


def test_no_recommends() -> None:
    assert names("a", of=catalogue(stanza("a", Recommends="b", Suggests="b"), stanza("b"))) == ["a=1"]


def test_the_first_alternative_that_can_be_had() -> None:
    index = catalogue(stanza("a", Depends="gone | b (>= 2) | c | d"), stanza("b"), stanza("c"), stanza("d"))
    assert names("a", of=index) == ["a=1", "c=1"]


def test_a_choice_falls_on_what_is_there_anyway() -> None:
    index = catalogue(stanza("a", Depends="x | y, b"), stanza("b", Depends="y"), stanza("x"), stanza("y"))
    assert names("a", of=index) == ["a=1", "b=1", "y=1"]


def test_virtual_packages() -> None:
    index = catalogue(
        stanza("a", Depends="virtual"),
        stanza("extra", Provides="virtual", Priority="extra"),
        stanza("z", Provides="other, virtual", Priority="optional"),
    )
    assert names("a", of=index) == ["a=1", "z=1"]


def test_versioned_provides() -> None:
    index = catalogue(
        stanza("a", Depends="virtual (>= 2)"),
        stanza("plain", Provides="virtual"),
        stanza("old", Provides="virtual (= 1)"),
        stanza("right", Provides="virtual (= 2.1)"),
    )
    assert names("a", of=index) == ["a=1", "right=1"]


def test_the_newest_version_of_all_suites_wins() -> None:
    assert names("a", of=catalogue(stanza("a", "1:1"), more=(stanza("a", "2"),))) == ["a=1:1"]
    assert names("a", of=catalogue(stanza("a", "1"), more=(stanza("a", "2"),))) == ["a=2"]


def test_a_suite_that_wants_to_be_asked_for_does_not() -> None:
    backports = (stanza("a", "2"), stanza("only-there", "2"))
    index = catalogue(stanza("a", "1"), more=backports, preference=100)
    assert names("a", "only-there", of=index) == ["a=1", "only-there=2"]
    assert names("a (>= 2)", of=index) == ["a=2"]


def test_parts_of_a_driver_are_not_mixed() -> None:
    """Found on the real bookworm: its security suite has a newer libnvidia-ml1 than the driver that
    matrix.yaml names.
    """
    index = catalogue(
        stanza("libcuda1", "535.261.03-1", Depends="libnvidia-ml1, libc6"),
        stanza("libnvidia-ml1", "535.261.03-1"),
        stanza("libc6", "2"),
        more=(stanza("libnvidia-ml1", "535.309.01-0+deb12u1"), stanza("libc6", "3")),
    )
    chosen = names("libcuda1", of=index, upstream="535.261.03")
    assert chosen == ["libc6=3", "libcuda1=535.261.03-1", "libnvidia-ml1=535.261.03-1"]


def test_what_is_given_is_left_out() -> None:
    index = catalogue(stanza("a", Depends="b, c"), stanza("b", Depends="c"), stanza("c"))
    assert names("a", of=index, given=("c", "b")) == ["a=1"]


@given(st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_roots_does_not_matter(roots: list[str]) -> None:
    index = catalogue(
        stanza("a", Depends="x | y"),
        stanza("b", Depends="y | x"),
        stanza("c"),
        stanza("d"),
        stanza("x"),
        stanza("y"),
    )
    assert names(*roots, of=index) == names("a", "b", "c", "d", of=index)


def test_what_is_missing_comes_with_the_chain() -> None:
    index = catalogue(stanza("a", Depends="b"), stanza("b", Depends="c (>= 2) | gone"), stanza("c", "1.5"))
    with pytest.raises(Unsatisfiable) as told:
        names("a", of=index)
    assert told.value.brief.endswith("have no c (>= 2) | gone")
    assert told.value.details == ("needed by b <- a", "c: 1.5 (a)", "gone: in no suite")


def test_two_versions_at_once_are_not_possible() -> None:
    index = catalogue(
        stanza("a", Depends="b (= 1), c"),
        stanza("c", Depends="b (= 2)"),
        stanza("b", "1"),
        more=(stanza("b", "2"),),
    )
    with pytest.raises(Unsatisfiable) as told:
        names("a", of=index)
    assert "is taken in version" in told.value.details[-1]


def test_a_stanza_without_a_digest_is_refused() -> None:
    with pytest.raises(InputError, match="incomplete"):
        catalogue(b"Package: a\nVersion: 1\nArchitecture: all\nFilename: x\nSize: 1\n").versions("a")
