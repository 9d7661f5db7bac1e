"""Every exit status that `driverforge` can give is in its help and in docs/failures.md, and no other."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import driverforge_build
import driverforge_mirror
import driverforge_oci
from driverforge_build.cli import cli
from driverforge_core.errors import DriverforgeError

ROOT = Path(__file__).parents[2]
PACKAGES = (driverforge_build, driverforge_mirror, driverforge_oci)


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in Path(package.__path__[0]).rglob("*.py"))


def error_classes() -> dict[str, int]:
    """Exit statuses by the name of the class, of all errors that the builder and its packages have."""
    for package in PACKAGES:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    waiting, found = [DriverforgeError], {}
    while waiting:
        one = waiting.pop()
        waiting += one.__subclasses__()
        if not one.__module__.startswith(("driverforge_host", "driverforge_driver", "driverforge_toolkit")):
            found[one.__name__] = one.exit_code
    return found


def used_names(path: Path) -> set[str]:
    """Names that a module uses outside of `except` clauses: what is caught is not given."""
    tree = ast.parse(path.read_text())
    caught = {
        id(name)
        for handler in ast.walk(tree)
        if isinstance(handler, ast.ExceptHandler) and handler.type
        for name in ast.walk(handler.type)
    }
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in caught}


def returned_numbers(path: Path) -> Iterator[int]:
    """Numbers that functions of a module return: `return 75 if plan.degraded else 0`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Return) and node.value is not None:
            for part in ast.walk(node.value):
                ends = [part.body, part.orelse] if isinstance(part, ast.IfExp) else []
                for value in (*ends, *([part] if part is node.value else [])):
                    if isinstance(value, ast.Constant) and type(value.value) is int:
                        yield value.value


def given_by_the_code() -> set[int]:
    classes = error_classes()
    names = {name for path in sources() for name in used_names(path)}
    package = Path(driverforge_build.__path__[0])
    modules = (package / "cli.py", package / "app/prepare.py", *(package / "commands").glob("*.py"))
    returned = {number for path in modules for number in returned_numbers(path)}
    return {0, 1} | returned | {status for name, status in classes.items() if name in names}


def test_help_has_every_status_and_no_other() -> None:
    told = CliRunner().invoke(cli, ["--help"]).output.partition("Exit status:")[2]
    assert {int(number) for number in re.findall(r"^ +(\d+) ", told, re.MULTILINE)} == given_by_the_code()


def test_the_page_has_every_status_and_no_other() -> None:
    page = (ROOT / "docs/failures.md").read_text()
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == given_by_the_code()


def commands() -> Iterator[tuple[str, click.Command]]:
    with click.Context(cli) as context:
        for name in cli.list_commands(context):
            command = cli.get_command(context, name)
            if isinstance(command, click.Group):
                yield from ((f"{name} {inner}", one) for inner, one in command.commands.items())
            elif command is not None:
                yield name, command


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=str)
def test_the_help_of_each_command_says_when_it_fails(name: str, command: click.Command) -> None:
    assert "Exit status: 0" in (command.help or "")
