"""Globs over ids, and choosing cells with them."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_build.matrix.globs import MAX_ALTERNATIVES, expand_braces, glob_set
from driverforge_build.matrix.select import near_ids, select_cells
from driverforge_core.errors import InputError, UsageError


@dataclass(frozen=True)
class Named:
    key: str


CELLS = tuple(
    Named(f"{system}-{arch}-{driver}-{kernel}")
    for system in ("debian12", "debian13", "rocky9")
    for arch in ("amd64", "arm64")
    for driver in ("535.261.03", "550.163.01")
    for kernel in ("jit", "6.1.0-50-cloud-amd64")
)


@pytest.mark.parametrize(
    ("glob", "expanded"),
    [
        ("a", ("a",)),
        ("a{b,c}", ("ab", "ac")),
        ("{a,b}{c,d}", ("ac", "ad", "bc", "bd")),
        ("a{b,c{d,e}}f", ("abf", "acdf", "acef")),
        ("{a,}b", ("ab", "b")),
        ("a{b}", ("a{b}",)),
        ("a{b,c", ("a{b,c",)),
        ("{x}{a,b}", ("{x}a", "{x}b")),
        ("{a,a}", ("a",)),
    ],
)
def test_braces_expand_as_in_a_shell(glob: str, expanded: tuple[str, ...]) -> None:
    assert expand_braces(glob) == expanded


def test_too_many_alternatives_are_refused() -> None:
    with pytest.raises(InputError, match=f"more than {MAX_ALTERNATIVES} globs"):
        expand_braces("{a,b}" * 12)


@given(st.text("ab{},*", max_size=24))
def test_braces_always_end_and_leave_no_group(glob: str) -> None:
    for text in expand_braces(glob):
        assert expand_braces(text) == (text,)


@pytest.mark.parametrize(
    ("glob", "count"),
    [
        ("debian12-*", 8),
        ("*-jit", 12),
        ("*-{535,550}.*-jit", 12),
        ("debian1[23]-arm64-*", 8),
        ("debian?2-*", 8),
        ("debian12", 0),
        ("DEBIAN12-*", 0),
    ],
)
def test_a_glob_matches_whole_ids(glob: str, count: int) -> None:
    assert sum(map(glob_set((glob,)), (cell.key for cell in CELLS))) == count


def test_select_keeps_the_order_and_skip_takes_away() -> None:
    found = select_cells(CELLS, select=["rocky9-*-jit", "debian12-*-jit"], skip=["*-arm64-*"])
    assert [cell.key for cell in found] == [
        "debian12-amd64-535.261.03-jit",
        "debian12-amd64-550.163.01-jit",
        "rocky9-amd64-535.261.03-jit",
        "rocky9-amd64-550.163.01-jit",
    ]
    assert select_cells(CELLS) == CELLS


def test_a_glob_without_a_match_names_near_ids() -> None:
    with pytest.raises(
        UsageError, match=r"--select debain12-amd64-535\.261\.03-jit matches none of 24 cells"
    ) as caught:
        select_cells(CELLS, select=["rocky9-*", "debain12-amd64-535.261.03-jit"])
    assert caught.value.exit_code == os.EX_USAGE
    assert caught.value.details[0] == "near: debian12-amd64-535.261.03-jit"


def test_a_toolkit_image_has_no_verdict() -> None:
    with pytest.raises(UsageError, match="have no verdict") as caught:
        select_cells(CELLS, select=["toolkit-*"])
    assert "`generate`, `build` and `push` take it" in caught.value.resolution
    assert "--toolkit-artifacts" in caught.value.resolution


def test_skipping_everything_is_said() -> None:
    with pytest.raises(UsageError, match=r"--skip \* leaves none of 8 cells"):
        select_cells(CELLS, select=["rocky9-*"], skip=["*"])


def test_selecting_from_nothing_is_said() -> None:
    assert select_cells(()) == ()
    with pytest.raises(UsageError, match="there are none"):
        select_cells((), select=["*"])


def test_near_ids_of_many_are_found_in_a_sample() -> None:
    keys = [f"debian12-amd64-535.261.03-6.1.0-{number}-cloud-amd64" for number in range(30_000)]
    assert len(near_ids("debian12-*-jit", keys)) == 5
