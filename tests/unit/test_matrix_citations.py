"""Where each name in matrix.yaml is known from: `[key]` in a comment, spelled out in the file's head.

A name that tests/cases/distributions/facts.json speaks of is cited from one of the sources that the facts
give for it. The comment stands at the name's own line or right above it, or so at its key or its row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from driverforge_build import resources
from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.derive import resolve_like
from driverforge_build.matrix.merge import row_id
from driverforge_build.matrix.yamltree import Listing, Node, Scalar, Table, parse_tree
from support.facts import Fact, facts

FILE = resources.builtin_matrix()
LINES = ["", *FILE.read_text().splitlines()]
BODY = next(number for number, line in enumerate(LINES) if line.startswith("# ---"))
CITED = re.compile(r"\[([a-z][a-z0-9]*)(?:#\d+|[ :][^\]]*)?\]")
DEFINED = re.compile(r"#   \[([a-z0-9]+)\] +(.*)")


@dataclass(frozen=True, slots=True)
class Name:
    """A value of an OS's row, and the lines whose comments speak of it: its own, its key's, its row's."""

    kind: str
    text: str
    lines: tuple[int, ...]

    def citations(self) -> set[str]:
        return {key for line in self.lines for key in citations_at(line)}


def comment(line: int) -> str:
    found = re.search(r"(?:^|\s)#\s(.*)$", LINES[line])
    return found[1] if found else ""


def citations_at(line: int) -> Iterator[str]:
    """Citations at the end of a line, and in the comment that stands right above it."""
    yield from CITED.findall(comment(line))
    above = line - 1
    while LINES[above].lstrip().startswith("#"):
        yield from CITED.findall(comment(above))
        above -= 1


def definitions() -> dict[str, str]:
    """The sources of the head, each with its whole text."""
    found: dict[str, str] = {}
    for line in LINES[1:BODY]:
        if match := DEFINED.match(line):
            found[key := match[1]] = match[2]
        elif found and line.startswith("#             "):
            found[key] += " " + line.removeprefix("#").strip()
    return found


def names_of(system: Table) -> Iterator[Name]:
    for key, value in system.items.items():
        yield from walk(value, (key,), (system.keys[key].line,))


def walk(node: Node, path: tuple[str, ...], lines: tuple[int, ...]) -> Iterator[Name]:
    if isinstance(node, Scalar):
        yield Name(" ".join(path[-2:]), node.text, (*lines, node.mark.line))
    elif isinstance(node, Listing):
        for item in node.items:
            yield from walk(item, path, (*lines, item.mark.line))
    else:
        for key, value in node.items.items():
            yield from walk(value, (*path, key), (*lines, node.keys[key].line))


def systems() -> dict[str, Table]:
    root = parse_tree(FILE.read_bytes(), FILE.name).root
    assert isinstance(root, Table)
    listing = root.items["systems"]
    assert isinstance(listing, Listing)
    rows = resolve_like(listing, [], {})
    return {row_id(row) or "": row for row in rows.items if isinstance(row, Table)}


def sources(fact: Fact) -> set[str]:
    """The short names of a fact's sources; `facts` where it names none but the chapter that has it."""
    found = {re.split(r"[: ]", part.strip())[0] for part in fact.source.split(";")}
    return {word for word in found if re.fullmatch("[a-z]+", word)} or {"facts"}


def known_from() -> dict[Name, set[str]]:
    """By name, the sources of the facts that speak of it, of whichever system that has it."""
    found: dict[Name, set[str]] = {}
    for key, system in SYSTEMS.items():
        for name in names_of(system):
            told = [sources(fact) for fact in facts(key) if fact.speaks_of(name.kind, name.text)]
            found.setdefault(name, set()).update(*told)
    return found


SYSTEMS = systems()
KNOWN = known_from()
DEFINITIONS = definitions()


def test_every_citation_is_spelled_out_and_every_source_is_cited() -> None:
    matrix = load_matrix()
    told = [comment(line) for line in range(BODY, len(LINES))]
    told += [branch.eol.source for branch in matrix.branches if branch.eol]
    told += [branch.note for branch in matrix.branches]
    told += [row.source for row in matrix.exclusions]
    told += [text for row in matrix.probes for text in row.evidence]
    cited = {key for text in told for key in CITED.findall(text)}
    assert cited == set(DEFINITIONS)


def test_every_kind_of_name_is_one_that_rows_have() -> None:
    assert {name.kind for system in SYSTEMS.values() for name in names_of(system)} >= NAMES


@pytest.mark.parametrize("key", DEFINITIONS)
def test_a_source_says_in_which_state_it_was_read(key: str) -> None:
    assert re.search(r"\bat [0-9a-f]{7}\b|\b20\d\d\b|\bof that (version|build)\b", DEFINITIONS[key])


NAMES = {
    "repositories id",
    "python package",
    "kernels compilers",
    "kernels headers",
    "kernels image",
    "kernels modules",
    "tools runtime",
    "tools jit",
    "modules packages",
    "firmware package",
    "drivers userspace",
    "drivers companions",
    "fabric packages",
    "fabric companions",
}


@pytest.mark.parametrize("key", SYSTEMS)
def test_every_package_and_every_repository_of_a_row_is_cited(key: str) -> None:
    named = [name for name in names_of(SYSTEMS[key]) if name.kind in NAMES]
    assert [f"line {name.lines[-1]}: {name.text}" for name in named if not name.citations()] == []


@pytest.mark.parametrize("key", SYSTEMS)
def test_a_name_that_the_facts_speak_of_is_cited_from_their_sources(key: str) -> None:
    uncited = [
        f"line {name.lines[-1]}: {name.text}: {', '.join(sorted(KNOWN[name]))}"
        for name in names_of(SYSTEMS[key])
        if KNOWN.get(name) and not KNOWN[name] & name.citations()
    ]
    assert uncited == []
