"""One module of `driverforge` prints. Whatever is printed elsewhere would go past what makes it printable."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import driverforge_build
import driverforge_mirror

PRINTERS = {"print", "echo", "secho", "writelines"}


def printing(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            # rich draws a table from texts that were made printable before
            drawn = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Call)
            if name in PRINTERS and not drawn:
                yield node.lineno
        elif isinstance(node, ast.Attribute) and node.attr == "write" and "std" in ast.unparse(node.value):
            yield node.lineno


def test_only_the_module_for_output_prints() -> None:
    packages = [Path(one.__path__[0]) for one in (driverforge_build, driverforge_mirror)]
    printer = packages[0] / "commands/shared/output.py"
    found = [
        f"{path}:{line}"
        for package in packages
        for path in sorted(package.rglob("*.py"))
        if path != printer
        for line in printing(ast.parse(path.read_text()))
    ]
    assert found == []
