"""Tables of runtimes in a template, which is no TOML: found, read and changed as text.

A table is a header and the lines up to the next one. What is read of it are its lines `key = value`; a value
may have expressions of the template's own (`{{ … }}`, `${…}`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from driverforge_core.errors import InputError
from driverforge_toolkit.runtime.formats.spelling import PROGRAM
from driverforge_toolkit.runtime.formats.tomledit import parse

_HEADER = r"^[ \t]*\[[^\[\]\n]*\bruntimes\.[\"']?(?P<name>[\w-]+)[\"']?"
_BODY = r"[ \t]*\][^\n]*(?:\n|\Z)(?P<body>(?:(?![ \t]*\[)[^\n]*\n|(?![ \t]*\[)[^\n]+\Z)*)"
_RUNTIME = re.compile(_HEADER + _BODY, re.MULTILINE)
_OPTIONS = re.compile(_HEADER + r"\.[\"']?options[\"']?" + _BODY, re.MULTILINE)
_LINE = re.compile(r"[ \t]*(?P<key>[\w-]+)[ \t]*=(?P<value>[^\r]*)")
_PROGRAM_LINE = re.compile(
    rf"^[ \t]*{PROGRAM}[ \t]*=[ \t]*(?P<value>\"[^\"\n]*\"|'[^'\n]*')", re.MULTILINE | re.IGNORECASE
)
_EXPRESSIONS = ("{{", "${")

Values = dict[str, str]  # a table's keys, each with its value as it is written


def has_table(text: str, runtime: str) -> bool:
    """Whether a text has a table of the runtime, or one of its options."""
    return any(found["name"] == runtime for kind in (_RUNTIME, _OPTIONS) for found in kind.finditer(text))


def tables_of(text: str, runtime: str) -> tuple[Values, Values] | None:
    """What a runtime's table and the one of its options say.

    None where they are not there once each, or say something else than lines of a key and a value.
    """
    found = [
        [_values(table["body"]) for table in kind.finditer(text) if table["name"] == runtime]
        for kind in (_RUNTIME, _OPTIONS)
    ]
    (own, *more), (options, *others) = (tables or [None] for tables in found)
    return None if own is None or options is None or more or others else (own, options)


def _values(body: str) -> Values | None:
    """The keys of a table, None where not each of its lines up to the last key is plain."""
    values: Values = {}
    other = False
    # lines end as TOML's do: a comment may have U+2028
    for line in (each.removesuffix("\r") for each in body.split("\n")):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key = _LINE.fullmatch(line)
        if key is None:
            other = True
        elif other or not _is_plain(line):
            return None
        else:
            values[key["key"]] = key["value"].strip(" \t")
    return values


def _is_plain(line: str) -> bool:
    if any(mark in line for mark in _EXPRESSIONS):
        return True
    try:
        parse(line.encode(), "a line of the template")
    except InputError:
        return False
    return True


def programs(text: str) -> Values:
    """The program that a text gives each runtime, as it is written; '' for one that is there twice.

    Also in two spellings: which of them counts is not ours to leave behind.
    """
    found: Values = {}
    for table in _OPTIONS.finditer(text):
        if lines := list(_PROGRAM_LINE.finditer(table["body"])):
            single = table["name"] not in found and len(lines) == 1
            found[table["name"]] = lines[0]["value"] if single else ""
    return found


def with_programs(text: str, wanted: Mapping[str, str]) -> str:
    """The text with other programs, as they shall be written, by runtime. All else stays as it is."""
    for table in reversed(list(_OPTIONS.finditer(text))):
        line = _PROGRAM_LINE.search(table["body"])
        if line is not None and table["name"] in wanted:
            start = table.start("body")
            text = (
                text[: start + line.start("value")]
                + wanted[table["name"]]
                + text[start + line.end("value") :]
            )
    return text
