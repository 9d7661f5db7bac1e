"""Maintenance windows: what is read, when they are open, and what a wrong one is told."""

from __future__ import annotations

import calendar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_core.errors import UsageError
from driverforge_toolkit.watch.window import DAY, DAYS, is_open, next_open, parse


def at(day: int, hour: int, minute: int = 0) -> float:
    """2026-08-`day`, UTC; the 22nd is a Saturday."""
    return calendar.timegm((2026, 8, day, hour, minute, 0))


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("Sat 02:00-04:00", [at(22, 2), at(22, 3, 59), at(29, 2)], [at(22, 1, 59), at(22, 4), at(23, 3)]),
        ("02:00-04:00", [at(20, 3), at(23, 3)], [at(20, 5)]),
        ("Sat,Sun 1:00-5:00", [at(22, 1), at(23, 4)], [at(24, 2)]),
        # Friday's goes into Saturday
        ("mon-fri 22:00-02:00", [at(21, 23), at(22, 1)], [at(22, 23), at(23, 1), at(24, 1)]),
        ("Fri-Mon 00:00-24:00", [at(21, 0), at(24, 23)], [at(25, 0), at(20, 23)]),
        ("Sat 22:00-24:00", [at(22, 23)], [at(23, 0)]),
    ],
)
def test_when_a_window_is_open(text: str, inside: list[float], outside: list[float]) -> None:
    windows = parse([text])
    assert [is_open(windows, now) for now in inside] == [True] * len(inside)
    assert [is_open(windows, now) for now in outside] == [False] * len(outside)


def test_without_a_window_it_is_always_open() -> None:
    assert is_open((), at(22, 12))
    assert next_open((), at(22, 12)) == at(22, 12)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Sat", "'Sat': it is neither DAYS HH:MM-HH:MM nor HH:MM-HH:MM"),
        ("Sat 2-4", "'Sat 2-4': it is neither DAYS HH:MM-HH:MM nor HH:MM-HH:MM"),
        ("Caturday 02:00-04:00", "'Caturday' is not a day; days are Mon, Tue, Wed, Thu, Fri, Sat, Sun"),
        ("Mon- 02:00-04:00", "'' is not a day"),
        ("Sat 02:60-04:00", "02:60 is not a time of day"),
        ("Sat 02:00-25:00", "25:00 is not a time of day"),
        ("Sat 24:00-02:00", "a window begins at 00:00, not at 24:00"),
        ("Sat 02:00-02:00", "begins and ends at one time; a whole day is 00:00-24:00"),
    ],
)
def test_what_a_wrong_window_is_told(text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse([text])
    assert told in caught.value.details[0]
    assert "Sat 02:00-04:00" in caught.value.resolution


def test_all_wrong_windows_are_told_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        parse(["Sat", "02:00-04:00", "Xxx 99:00-04:00"])
    assert len(caught.value.details) == 3


@given(
    day=st.sampled_from(DAYS),
    start=st.integers(0, DAY // 60 - 1),
    length=st.integers(1, DAY // 60 - 1),
    now=st.integers(0, 2_000_000_000),
)
def test_a_window_opens_within_a_week(day: str, start: int, length: int, now: int) -> None:
    end = (start + length) % (DAY // 60)
    windows = parse([f"{day} {start // 60:02}:{start % 60:02}-{end // 60:02}:{end % 60:02}"])
    opens = next_open(windows, now)
    assert now <= opens < now + 7 * DAY
    assert is_open(windows, opens)
    assert opens == now or not is_open(windows, opens - 1)
