"""Commands that the product prints, taken apart as a shell does, and the tests that run them.

What is behind a `#` is for people. The inventories of commands are collected from the code
(`tests/unit/test_advised_commands.py`, `tests/tree/test_doctor_cures.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

TESTS = Path(__file__).resolve().parents[1]
_Test = TypeVar("_Test", bound=Callable[..., object])


def cures(*rules: str) -> Callable[[_Test], _Test]:
    """Says of a test that it runs what the doctor prints for these rules, on the state that it is for."""
    return lambda test: test


def cured() -> frozenset[str]:
    """The rules of which some test says so."""
    return frozenset(
        name.value
        for path in sorted(TESTS.rglob("test_*.py"))
        if "cures(" in (text := path.read_text())
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef)
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "cures"
        for name in decorator.args
        if isinstance(name, ast.Constant) and isinstance(name.value, str)
    )


def pieces(text: str) -> Iterator[str]:
    """The commands of a line of shell, without its comment."""
    start, quoted = 0, ""
    for at, sign in enumerate(text):
        if quoted:
            quoted = "" if sign == quoted else quoted
        elif sign in "'\"":
            quoted = sign
        elif sign == "#" and (at == 0 or text[at - 1] == " "):
            yield from filter(None, [text[start:at].strip()])
            return
        elif sign in ";&|":
            yield from filter(None, [text[start:at].strip()])
            start = at + 1
    yield from filter(None, [text[start:].strip()])


def texts(source: str) -> Iterator[str]:
    """The texts of a module, without its docstrings; what an f-string fills in is X."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    kinds = (ast.Module, ast.FunctionDef, ast.ClassDef)
    skipped = {
        id(first.value)
        for node in nodes
        if isinstance(node, kinds)
        for first in node.body[:1]
        if isinstance(first, ast.Expr)
    }
    skipped |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value
