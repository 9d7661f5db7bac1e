"""Globs that select cells by their whole ids, as the shell matches file names.

`*`, `?`, `[...]` and `{a,b}`; a `*` also crosses '.' and '-'.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from driverforge_core.errors import InputError

MAX_ALTERNATIVES = 1000

Predicate = Callable[[str], bool]


def expand_braces(glob: str) -> tuple[str, ...]:
    """`a{b,c{d,e}}` as ('ab', 'acd', 'ace'); a brace without a partner or without a comma stands for itself.

    Raises InputError where there would be more than MAX_ALTERNATIVES.
    """
    done: list[str] = []
    waiting = [glob]
    while waiting:
        text = waiting.pop()
        group = _first_group(text)
        if group is None:
            done.append(text)
        else:
            start, end, parts = group
            waiting += [text[:start] + part + text[end:] for part in reversed(parts)]
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise InputError(
                f"{glob!r} stands for more than {MAX_ALTERNATIVES} globs",
                resolution="use * in place of some braces",
            )
    return tuple(dict.fromkeys(done))


def _first_group(text: str) -> tuple[int, int, list[str]] | None:
    """Start, end and alternatives of the first brace group that has a comma at its own level."""
    for start, character in enumerate(text):
        if character != "{":
            continue
        depth, cuts = 0, [start]
        for index in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[index], 0)
            if text[index] == "," and depth == 1:
                cuts.append(index)
            if depth == 0:
                if len(cuts) > 1:
                    ends = [*cuts[1:], index]
                    return (
                        start,
                        index + 1,
                        [text[cut + 1 : end] for cut, end in zip(cuts, ends, strict=True)],
                    )
                break
    return None


@lru_cache(maxsize=512)
def glob_set(globs: tuple[str, ...]) -> Predicate:
    """A predicate that is true for a text which any of the globs matches in full. Compiled once."""
    patterns = [fnmatch.translate(one) for glob in globs for one in expand_braces(glob)]
    if not patterns:
        return _nothing
    match = re.compile("|".join(f"(?:{pattern})" for pattern in patterns)).match
    return lambda text: match(text) is not None


def _nothing(_: str) -> bool:
    return False


def matching(globs: Iterable[str], names: Iterable[str]) -> list[str]:
    """The names that any of the globs matches, in their order."""
    wanted = glob_set(tuple(globs))
    return [name for name in names if wanted(name)]
