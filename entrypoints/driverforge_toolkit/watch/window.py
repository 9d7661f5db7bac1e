"""Maintenance windows: 'Sat 02:00-04:00', in UTC. Pure arithmetic on seconds since the epoch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from driverforge_core.errors import UsageError

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY = 86400
EPOCH_WEEKDAY = 3  # 1970-01-01 was a Thursday
FORM = re.compile(r"(?:(?P<days>\S+)\s+)?(?P<begin>\d{1,2}:\d\d)-(?P<end>\d{1,2}:\d\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A weekly time span. `days` count from Monday, 0; `start` and `length` are in seconds.

    One that goes past midnight belongs to the day on which it starts.
    """

    days: frozenset[int]
    start: int
    length: int


def parse(texts: Iterable[str]) -> tuple[Window, ...]:
    """The windows of these texts. Raises UsageError with every problem.

    Forms are 'Sat 02:00-04:00', 'Mon-Fri 22:00-02:00', 'Sat,Sun 01:00-05:00' and '02:00-04:00'.
    """
    found: list[Window] = []
    problems: list[str] = []
    for text in texts:
        window = _window(text.strip(), problems)
        if window:
            found.append(window)
    if problems:
        raise UsageError(
            "a maintenance window cannot be read",
            details=problems,
            resolution="write it as 'Sat 02:00-04:00', 'Mon-Fri 22:00-02:00', "
            "'Sat,Sun 01:00-05:00' or '02:00-04:00' (every day), in UTC",
        )
    return tuple(found)


def _window(text: str, problems: list[str]) -> Window | None:
    match = FORM.fullmatch(text)
    if not match:
        problems.append(f"{text!r}: it is neither DAYS HH:MM-HH:MM nor HH:MM-HH:MM")
        return None
    before = len(problems)
    days = _days(match["days"] or "", text, problems)
    start, end = (_seconds(match[name], text, problems) for name in ("begin", "end"))
    if len(problems) == before and start == DAY:
        problems.append(f"{text!r}: a window begins at 00:00, not at 24:00")
    if len(problems) == before and start == end:
        problems.append(f"{text!r}: it begins and ends at one time; a whole day is 00:00-24:00")
    if len(problems) > before:
        return None
    return Window(days=days, start=start, length=(end - start) % DAY or DAY)


def _days(words: str, text: str, problems: list[str]) -> frozenset[int]:
    if not words:
        return frozenset(range(7))
    found: set[int] = set()
    for word in words.split(","):
        first, dash, last = word.partition("-")
        wrong = [name for name in (first, *([last] if dash else [])) if name.capitalize() not in DAYS]
        if wrong:
            problems += [f"{text!r}: {name!r} is not a day; days are {', '.join(DAYS)}" for name in wrong]
            continue
        begin = DAYS.index(first.capitalize())
        end = DAYS.index((last or first).capitalize())
        found |= {(begin + step) % 7 for step in range((end - begin) % 7 + 1)}
    return frozenset(found)


def _seconds(clock: str, text: str, problems: list[str]) -> int:
    hours, minutes = map(int, clock.split(":"))
    seconds = (hours * 60 + minutes) * 60
    if minutes > 59 or seconds > DAY:
        problems.append(f"{text!r}: {clock} is not a time of day")
    return seconds


def _starts(window: Window, now: float) -> list[float]:
    """When the window begins, from yesterday to a week from now; in order."""
    today = int(now // DAY)
    days = range(today - 1, today + 8)
    return [day * DAY + window.start for day in days if (day + EPOCH_WEEKDAY) % 7 in window.days]


def is_open(windows: Sequence[Window], now: float) -> bool:
    """Without any window, it always is."""
    return not windows or any(
        start <= now < start + window.length for window in windows for start in _starts(window, now)
    )


def next_open(windows: Sequence[Window], now: float) -> float:
    """When a window is next open: `now`, where one is."""
    if is_open(windows, now):
        return now
    return min(start for window in windows for start in _starts(window, now) if start > now)
