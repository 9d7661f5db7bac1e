"""Order of Debian versions: deb-version(7), the algorithm of dpkg's lib/dpkg/version.c."""

from __future__ import annotations

import re

from driverforge_core.errors import InputError

_LEGAL = re.compile(
    r"(?:(?P<epoch>\d+):)?(?P<upstream>\d[A-Za-z0-9.+~:-]*?)(?:-(?P<revision>[A-Za-z0-9.+~]+))?", re.ASCII
)
LONGEST = 512
"""Characters of a version; a number of thousands of digits is nobody's."""
_RUNS = re.compile(r"(\D*)(\d*)", re.ASCII)

_Run = tuple[tuple[int, ...], int]
Key = tuple[int, tuple[_Run, ...], tuple[_Run, ...]]


def compare(a: str, b: str) -> int:
    """-1, 0 or 1 as `a` is older than, as old as, or newer than `b`.

    InputError for a text that is no version.
    """
    left, right = key(a), key(b)
    return (left > right) - (left < right)


def key(version: str) -> Key:
    """A sort key; equal keys mean equal versions to dpkg ('1.0' and '0:1.0-0')."""
    found = _LEGAL.fullmatch(version)
    if (
        not found
        or len(version) > LONGEST
        or (found["epoch"] is None and ":" in found["upstream"])
        or (found["revision"] is None and "-" in found["upstream"])
    ):
        raise InputError(
            f"{version[:LONGEST]!r} is not a Debian version",
            resolution="see deb-version(7): [epoch:]upstream[-revision]",
        )
    return int(found["epoch"] or 0), _runs(found["upstream"]), _runs(found["revision"] or "0")


def _runs(text: str) -> tuple[_Run, ...]:
    """Runs of non-digits and digits.

    The final ((0,), 0) stands for the end of the text, which sorts after ~ and before the rest.
    """
    return tuple(
        ((*(_weight(char) for char in word), 0), int(number or 0)) for word, number in _RUNS.findall(text)
    )


def _weight(char: str) -> int:
    if char == "~":
        return -1
    return ord(char) if char.isalpha() else ord(char) + 256
