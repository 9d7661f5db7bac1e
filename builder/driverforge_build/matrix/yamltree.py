"""YAML text as a tree of nodes that know their line, with every scalar as text and every problem collected.

The tree is made from libyaml's events, not from its composed nodes: its composer recurses in C (a file of
brackets would end the process) and expands an alias before anyone can count. Events are flat, so limits hold
while the file is read. Scalars stay text because YAML 1.1 reads `550.90` as 550.9, `12:30` as 750, `0777` as
511 and `no` as false.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import yaml

MAX_BYTES = 1 << 20
MAX_NODES = 50_000
MAX_DEPTH = 24
MAX_SYNTAX_ERRORS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place in a file; `line` counts from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong: where, what, and what to write instead."""

    mark: Mark
    text: str

    def __str__(self) -> str:
        return f"{self.mark}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    text: str
    mark: Mark
    plain: bool = True
    """Written without quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    items: tuple[Node, ...]
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A mapping; `keys` has the mark of each key, which is where a message about its value points."""

    items: dict[str, Node]
    keys: dict[str, Mark]
    mark: Mark


Node: TypeAlias = Scalar | Listing | Table


@dataclass(slots=True)
class _Open:
    """A collection that is being read: `key` is the pending key of a mapping."""

    mark: Mark
    table: bool
    anchor: str | None
    values: list[Node] = field(default_factory=list)
    items: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Mark] = field(default_factory=dict)
    key: tuple[str, Mark] | None = None
    skip_value: bool = False


class _TooMuch(Exception):
    """A limit was passed; the rest of the file is not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One YAML document: its tree (None where nothing could be read), and every problem of its text.

    Not `whole` when lines had to be dropped to read on: what is missing may be in one of them.
    """

    root: Node | None
    problems: list[Problem]
    whole: bool


# the shipped catalogue lies below each matrix of a site; half of what loading one takes is to read it
@lru_cache(maxsize=2)
def parse_tree(data: bytes, file: str) -> Document:
    """Read a file's bytes; never raises. Nobody changes what this returns."""
    if len(data) > MAX_BYTES:
        problem = Problem(
            mark=Mark(file=file, line=1),
            text=f"the file has {len(data)} bytes; a matrix has at most {MAX_BYTES}",
        )
        return Document(root=None, problems=[problem], whole=False)
    text, problems = _decode(data, file)
    text, tabs = _without_tabs(text, file)
    problems += tabs
    lines = text.split("\n")
    whole = True
    for _ in range(MAX_SYNTAX_ERRORS):
        reader = _Reader(file)
        try:
            root = reader.read("\n".join(lines))
        except yaml.MarkedYAMLError as error:
            whole = False
            line = min(_blamed_line(error), len(lines))
            if line not in {tab.mark.line for tab in tabs}:
                problems.append(Problem(mark=Mark(file=file, line=line), text=_syntax_text(error)))
            if not lines[line - 1].strip():
                break
            # go on without the line, so that what else is wrong is told in the same run
            lines[line - 1] = ""
        except yaml.YAMLError as error:
            problems.append(Problem(mark=Mark(file=file, line=1), text=f"not YAML: {error}"))
            break
        except _TooMuch:
            problems += reader.problems
            break
        else:
            return Document(root=root, problems=problems + reader.problems, whole=whole)
    return Document(root=None, problems=problems, whole=False)


def _decode(data: bytes, file: str) -> tuple[str, list[Problem]]:
    problems = []
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        mark = Mark(file=file, line=data.count(b"\n", 0, error.start) + 1)
        problems.append(
            Problem(mark=mark, text=f"byte {data[error.start]:#04x} is not UTF-8; save the file as UTF-8")
        )
        text = data.decode("utf-8-sig", errors="replace")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    # the characters that YAML forbids (and line separators that would shift our line numbers)
    for number, line in enumerate(text.split("\n"), 1):
        found = _FORBIDDEN.search(line)
        if found:
            problems.append(
                Problem(
                    mark=Mark(file=file, line=number),
                    text=f"the character U+{ord(found[0]):04X} may not stand in YAML; remove it",
                )
            )
    return _FORBIDDEN.sub(" ", text), problems


_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


def _without_tabs(text: str, file: str) -> tuple[str, list[Problem]]:
    problems = []
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if "\t" in line:
            problems.append(
                Problem(mark=Mark(file=file, line=number), text="a tab; indent and separate with spaces")
            )
            rest = line.lstrip(" \t")
            indent = line[: len(line) - len(rest)]
            column = _column(rest, lines[: number - 1]) if "\t" in indent else len(indent)
            lines[number - 1] = " " * column + rest.replace("\t", "  ")
    return "\n".join(lines), problems


def _column(rest: str, above: list[str]) -> int:
    """Where a line that a tab indents was most likely meant to begin: beside the row or the key above it."""
    row = rest.startswith("- ")
    for line in reversed(above):
        start = re.match(r" *(- +)*", line)
        if start and line.strip() and (not row or "-" in start[0]):
            return start[0].index("-") if row else start.end() + 2 * line.rstrip().endswith(":")
    return 2


def _blamed_line(error: yaml.MarkedYAMLError) -> int:
    """Line to point to: an unclosed bracket or quote is reported where the reader noticed, far below."""
    context = error.context or ""
    mark = error.problem_mark
    if error.context_mark is not None and ("flow" in context or "quoted" in context):
        mark = error.context_mark
    return mark.line + 1 if mark is not None else 1


_ADVICE: tuple[tuple[str, str], ...] = (
    (
        "mapping values are not allowed",
        "a second ': ' in one line; put the text in quotes, or start a new line",
    ),
    ("flow", "a '[' or '{' that is not closed, or a missing comma; close it on the same line"),
    ("quoted scalar", "a quote that is not closed; close it on the same line"),
    ("could not find expected ':'", "no ': ' after the key; write KEY: VALUE"),
    ("did not find expected key", "the indentation fits no row above; align it with its neighbours"),
    (
        "did not find expected '-' indicator",
        "the indentation fits no row above; align it with its neighbours",
    ),
    (
        "block sequence entries are not allowed",
        "a '- ' where no list can start; begin the list on its own line",
    ),
    ("cannot start any token", "a character that cannot begin a value; put the text in quotes"),
    ("undefined alias", "an alias (*NAME) of an anchor that does not exist; write the value out"),
    ("undefined tag", "a tag (!NAME); remove it, every value is text"),
    ("expected <document start>", "more than one document; keep one, without '---' between"),
)


def _syntax_text(error: yaml.MarkedYAMLError) -> str:
    said = " ".join(filter(None, (error.context, error.problem)))
    advice = next(
        (advice for part, advice in _ADVICE if part in said), "see the YAML syntax of the lines around it"
    )
    return f"YAML syntax: {advice} ({said})"


class _Reader:
    """Builds one tree from events."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self._anchors: dict[str, Node] = {}
        self._count = 0
        self._stack: list[_Open] = []
        self._root: Node | None = None
        self._documents = 0

    def read(self, text: str) -> Node | None:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            self._take(event)
        return self._root

    def _mark(self, event: yaml.Event) -> Mark:
        return Mark(file=self.file, line=event.start_mark.line + 1 if event.start_mark else 1)

    def _problem(self, mark: Mark, text: str) -> None:
        self.problems.append(Problem(mark=mark, text=text))

    def _counted(self, mark: Mark, nodes: int) -> None:
        self._count += nodes
        if self._count > MAX_NODES:
            self._problem(
                mark,
                f"more than {MAX_NODES} values, aliases counted as often as they are used; write a smaller "
                f"matrix",
            )
            raise _TooMuch

    def _take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents == 2:
                self._problem(self._mark(event), "a second document; keep one, without '---' between")
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.ScalarEvent):
            self._tag(event, event.tag)
            scalar = Scalar(text=event.value, mark=self._mark(event), plain=not event.style)
            self._counted(scalar.mark, 1)
            if event.anchor is not None:
                self._anchors[event.anchor] = scalar
            self._place(scalar)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            self._tag(event, event.tag)
            mark = self._mark(event)
            self._counted(mark, 1)
            self._nested(mark, 1)
            self._stack.append(
                _Open(mark=mark, table=isinstance(event, yaml.MappingStartEvent), anchor=event.anchor)
            )
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            self._close()

    def _tag(self, event: yaml.Event, tag: str | None) -> None:
        if tag is not None:
            self._problem(self._mark(event), f"the tag {tag}; remove it, every value is text")

    def _alias(self, event: yaml.AliasEvent) -> None:
        mark = self._mark(event)
        known = self._anchors.get(event.anchor or "")
        if known is None:
            self._problem(
                mark, f"*{event.anchor} names no anchor that is complete above it; write the value out"
            )
            self._place(Scalar(text="", mark=mark))
            return
        size, depth = extent(known)
        self._counted(mark, size)
        self._nested(mark, depth)
        self._place(known)

    def _nested(self, mark: Mark, depth: int) -> None:
        if len(self._stack) + depth > MAX_DEPTH:
            self._problem(mark, f"nested deeper than {MAX_DEPTH} levels; a matrix is flatter")
            raise _TooMuch

    def _close(self) -> None:
        done = self._stack.pop()
        table = Table(items=done.items, keys=done.keys, mark=done.mark)
        node = table if done.table else Listing(items=tuple(done.values), mark=done.mark)
        if done.anchor is not None:
            self._anchors[done.anchor] = node
        self._place(node)

    def _place(self, node: Node) -> None:
        if not self._stack:
            self._root = node if self._root is None else self._root
            return
        top = self._stack[-1]
        if not top.table:
            top.values.append(node)
        elif top.key is None and not top.skip_value:
            self._place_key(top, node)
        else:
            if top.key is not None:
                top.items[top.key[0]], top.keys[top.key[0]] = node, top.key[1]
            top.key, top.skip_value = None, False

    def _place_key(self, top: _Open, node: Node) -> None:
        if not isinstance(node, Scalar):
            self._problem(node.mark, "a list or mapping as a key; write KEY: VALUE with a plain word as key")
            top.skip_value = True
        elif node.text in top.items:
            self._problem(
                node.mark,
                f"{node.text!r} a second time (first in line {top.keys[node.text].line}); keep one of them",
            )
            top.skip_value = True
        elif node.text == "<<" and node.plain:
            self._problem(
                node.mark,
                "'<<' (a merge key); write `like: ID` in a row that is to take over another's values",
            )
            top.skip_value = True
        else:
            top.key = (node.text, node.mark)


def extent(node: Node) -> tuple[int, int]:
    """The number of nodes of a tree, and its depth.

    An alias counts as often as it is used. The reader bounds the depth.
    """
    if isinstance(node, Scalar):
        return 1, 1
    children = [extent(child) for child in (node.items if isinstance(node, Listing) else node.items.values())]
    return 1 + sum(size for size, _ in children), 1 + max((depth for _, depth in children), default=0)
