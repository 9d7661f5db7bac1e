"""Order of RPM versions: rpm-version(7), the algorithm of rpm's rpmio/rpmvercmp.c."""

from __future__ import annotations

import re
from functools import cmp_to_key
from typing import Any

from driverforge_core.errors import InputError

_LEGAL = re.compile(
    r"(?:(?P<epoch>\d+):)?(?P<version>[A-Za-z0-9._+~^]+)(?:-(?P<release>[A-Za-z0-9._+~^]+))?", re.ASCII
)
LONGEST = 512
"""Characters of a version; a number of thousands of digits is nobody's."""
_SEGMENT = re.compile(r"~|\^|[0-9]+|[A-Za-z]+")


def compare(a: str, b: str) -> int:
    """-1, 0 or 1 for [epoch:]version[-release]; no epoch is 0, and no release is older than any.

    InputError for other text.
    """
    left, right = _split(a), _split(b)
    if left[0] != right[0]:
        return 1 if left[0] > right[0] else -1
    return vercmp(left[1], right[1]) or vercmp(left[2], right[2])


key: Any = cmp_to_key(compare)
"""A sort key for [epoch:]version[-release]."""


def vercmp(a: str, b: str) -> int:
    """Compare one part, a version or a release, segment by segment.

    Digits as numbers, letters as text, a number is newer than letters; ~ is older than the end, ^ newer than
    the end and older than anything else. Whatever separates segments does not count.
    """
    left, right = _SEGMENT.findall(a), _SEGMENT.findall(b)
    for one, two in zip(left, right):  # noqa: B905 -- the longer one is looked at below
        if difference := _compare_segments(one, two):
            return difference
    if len(left) == len(right):
        return 0
    longer = 1 if len(left) > len(right) else -1
    following = (left if longer > 0 else right)[min(len(left), len(right))]
    return -longer if following == "~" else longer


def _compare_segments(one: str, two: str) -> int:
    left, right = _segment_key(one), _segment_key(two)
    return (left > right) - (left < right)


def _segment_key(segment: str) -> tuple[int, int, str]:
    if segment in "~^":
        return "~^".index(segment), 0, ""
    return (3, int(segment), "") if segment.isdigit() else (2, 0, segment)


def _split(text: str) -> tuple[int, str, str]:
    found = _LEGAL.fullmatch(text)
    if not found or len(text) > LONGEST:
        raise InputError(
            f"{text[:LONGEST]!r} is not an RPM version",
            resolution="see rpm-version(7): [epoch:]version[-release]",
        )
    return int(found["epoch"] or 0), found["version"], found["release"] or ""
