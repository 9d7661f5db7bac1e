"""Edits of a JSON document that keep every byte elsewhere.

Order, indentation, the spelling of numbers and the line ends stay. The counterpart of `tomledit`, for
docker's daemon.json. It is as strict as dockerd's parser, and stricter where that one drops something without
a word: of a key that is there twice, dockerd takes the last one; here the file is refused.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from driverforge_core.errors import InputError
from driverforge_toolkit.runtime.formats.values import (
    BOM,
    REMOVED,
    Change,
    KeyPath,
    lookup,
    put,
    same,
    take,
    text_of,
)

UNIT = "    "
_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_PLAIN = re.compile(r"[^,\]}\s]+")


def parse(data: bytes, name: str) -> dict[str, object]:
    """The document as values, {} for an empty one.

    Raises InputError with the place of the mistake; `name` is the file's, for messages.
    """
    text = text_of(data, name).removeprefix(BOM)
    if not text.strip():
        return {}
    try:
        found = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
    except (
        ValueError,
        RecursionError,
    ) as error:
        # JSONDecodeError is a ValueError; so is an integer of too many digits
        raise InputError(
            f"{name} is not valid JSON",
            details=[f"{name}: {error}"],
            resolution="repair the file; nothing was changed",
        ) from error
    if not isinstance(found, dict):
        raise InputError(
            f"{name}: the document is not an object", resolution="repair the file; nothing was changed"
        )
    return found


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f'the key "{name}" is there twice')
    return dict(pairs)


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def edited(
    data: bytes,
    values: Mapping[str, object],
    changes: Sequence[Change],
    name: str,
    *,
    keep: Mapping[str, object],
) -> tuple[bytes, dict[str, object]]:
    """See `ConfigFile.edited`: the new document, and its values. `values` are those of `data`.

    Raises InputError where a change needs an object and finds something else.
    """
    meant = copy.deepcopy(dict(values))
    text = text_of(data, name)
    for change in changes:
        gone = change.value is REMOVED
        text = _removed(text, meant, change.path, keep) if gone else _set(text, meant, change, name)
    result = text.encode()
    found = parse(result, name)
    if not same(found, meant):  # a defect of ours; it must not reach the file
        raise InputError(f"{name} cannot be edited", resolution="report this file; nothing was changed")
    return result, found


# -- spans of the text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A key and its value in the text. `start`, `value` and `end` are indices."""

    key: str
    start: int  # of the key's quote
    value: int  # of the value's first character
    end: int  # after the value


def _value_end(text: str, at: int) -> int:
    """The index after the value that starts at `at`. The text is known to be valid."""
    if text[at] == '"':
        return _expect(_STRING, text, at)
    if text[at] not in "{[":
        return _expect(_PLAIN, text, at)
    depth = 0
    for token in _BRACKET.finditer(text, at):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token.group(), 0)
        if depth == 0:
            return token.end()
    raise ValueError("unbalanced")  # unreachable: the text was parsed before


def _expect(pattern: re.Pattern[str], text: str, at: int) -> int:
    """The index after the `pattern` that is known to be at `at`."""
    found = pattern.match(text, at)
    if found is None:
        raise ValueError(f"nothing of the kind at {at}")  # unreachable: the text was parsed before
    return found.end()


def _members(text: str, at: int) -> Iterator[_Member]:
    """The members of the object whose opening brace is at `at`."""
    at = _expect(_SPACE, text, at + 1)
    while text[at] == '"':
        end = _value_end(text, at)
        value = _expect(_SPACE, text, text.index(":", end) + 1)
        member = _Member(key=json.loads(text[at:end]), start=at, value=value, end=_value_end(text, value))
        yield member
        at = _expect(_SPACE, text, member.end)
        if text[at] == ",":
            at = _expect(_SPACE, text, at + 1)


def _find(text: str, path: KeyPath) -> tuple[int, _Member | None, KeyPath]:
    """Follow `path` into the text as far as it goes.

    Returns the brace of the innermost object on the path; its member on the path, None where it has none; and
    the rest of the path, from that member on.
    """
    brace = text.index("{")
    for place, key in enumerate(path):
        member = next((each for each in _members(text, brace) if each.key == key), None)
        if member is None or place == len(path) - 1:
            return brace, member, path[place:]
        brace = member.value
    return brace, None, ()


# -- layout


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _gap(text: str, start: int) -> str:
    """The blanks before a member that starts at `start`."""
    return text[len(text[:start].rstrip(" \t\r\n")) : start]


def _unit(text: str) -> str | None:
    """The indentation of one level, None for a document on one line."""
    first = next(_members(text, text.index("{")), None)
    if first is None:
        return UNIT
    gap = _gap(text, first.start)
    return gap.rpartition("\n")[2] if "\n" in gap else None


def _line_indent(text: str, at: int) -> str:
    """The indentation of the line that the index `at` is in."""
    line = text[text.rfind("\n", 0, at) + 1 : at].removeprefix(BOM)
    return line[: len(line) - len(line.lstrip(" \t"))]


def _rendered(text: str, value: object, indent: str | None) -> str:
    """The text of a value in the document's style, at this indentation; None puts it on one line."""
    unit = _unit(text)
    lines = None if indent is None else unit or UNIT
    shown = json.dumps(value, indent=lines, ensure_ascii=False)
    try:
        shown.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, as a word of the command line that is no UTF-8
        shown = json.dumps(value, indent=lines)
    return shown.replace("\n", _newline(text) + (indent or ""))


# -- changes


def _set(text: str, meant: dict[str, object], change: Change, name: str) -> str:
    """The text with the change applied.

    Applies it to the values `meant` as well: the caller compares the two.
    """
    if not text.removeprefix(BOM).strip():
        text = f"{text}{{}}{_newline(text)}"
    for depth in range(1, len(change.path)):
        above = lookup(meant, change.path[:depth])
        if above is not REMOVED and not isinstance(above, dict):
            raise InputError(
                f"{name}: {'.'.join(change.path[:depth])} is not an object",
                details=[f"{name}: {'.'.join(change.path[:depth])} = {json.dumps(above)}"],
                resolution="repair the file; nothing was changed",
            )
    if change.value == {} and isinstance(lookup(meant, change.path), dict):
        return text  # an object that shall exist
    put(meant, change.path, copy.deepcopy(change.value))
    brace, member, (key, *below) = _find(text, change.path)
    value = change.value
    for outer in reversed(below):
        value = {outer: value}
    if member is None:
        return _inserted(text, brace, key, value)
    gap = _gap(text, member.start)
    shown = _rendered(text, value, gap.rpartition("\n")[2] if "\n" in gap else None)
    return text[: member.value] + shown + text[member.end :]


def _inserted(text: str, brace: int, key: str, value: object) -> str:
    """The text with a new last member of the object at `brace`, in the style of the member before it."""
    last = None
    for last in _members(text, brace):  # noqa: B007 the last one is what is wanted
        pass
    if last is not None:
        gap = _gap(text, last.start)
        colon = text[_value_end(text, last.start) : last.value]
        indent = gap.rpartition("\n")[2] if "\n" in gap else None
        member = f"{json.dumps(key)}{colon}{_rendered(text, value, indent)}"
        return f"{text[: last.end]},{gap or ' ' * colon.endswith(' ')}{member}{text[last.end :]}"
    end = text.index("}", brace)
    unit, outer = _unit(text), _line_indent(text, brace)
    if unit is None:
        return f"{text[: brace + 1]}{json.dumps(key)}: {_rendered(text, value, None)}{text[end:]}"
    member = f"{json.dumps(key)}: {_rendered(text, value, outer + unit)}"
    newline = _newline(text)
    return f"{text[: brace + 1]}{newline}{outer}{unit}{member}{newline}{outer}{text[end:]}"


def _removed(text: str, meant: dict[str, object], path: KeyPath, keep: Mapping[str, object]) -> str:
    """The text without the key `path`. Takes it from the values `meant` as well.

    What went from the values goes from the text: the key, or the outermost object that is empty without it.
    """
    if lookup(meant, path) is REMOVED:
        return text
    take(meant, path, keep)
    # what went from the values goes from the text: the key, or the outermost object that is empty now
    gone = next(path[:depth] for depth in range(1, len(path) + 1) if lookup(meant, path[:depth]) is REMOVED)
    brace, _, _ = _find(text, gone)
    members = list(_members(text, brace))
    place = next(index for index, member in enumerate(members) if member.key == gone[-1])
    if len(members) == 1:
        return text[: brace + 1] + text[text.index("}", members[0].end) :]
    if place == len(members) - 1:
        return text[: members[place - 1].end] + text[members[place].end :]
    return text[: members[place].start] + text[members[place + 1].start :]
