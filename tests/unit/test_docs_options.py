"""Every option of every command is named by a page of docs, or is a variable of a page of variables."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from driverctl import cli as node
from driverforge_build import cli as builder
from driverforge_operator import cli as operator
from driverforge_toolkit.validate.validator_settings import VARIABLES

TOP = Path(__file__).resolve().parents[2]
USUAL = {"--help", "--version"}
# their page says that each variable of its table is an option, too
BY_VARIABLE = {variable.flag for variable in VARIABLES}


def _longest(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.startswith("--")} - USUAL


def _of_click(command: click.Command, path: str) -> Iterator[tuple[str, set[str]]]:
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden and (names := _longest(option.opts)):
            yield path, names
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _of_click(found, f"{path} {name}")


def _of_argparse(parser: argparse.ArgumentParser, path: str) -> Iterator[tuple[str, set[str]]]:
    for action in parser._actions:  # argparse has no other list of them
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from _of_argparse(child, f"{path} {name}")
        elif action.help != argparse.SUPPRESS and (names := _longest(action.option_strings)):
            yield path, names


def _all() -> Iterator[tuple[str, set[str]]]:
    yield from _of_click(builder.cli, "driverforge")
    yield from _of_click(operator.cli, "driverforge-operator")
    for name in node.SUBCOMMANDS:
        yield from _of_argparse(node.build_parser(name), "driverctl")


def test_every_option_is_on_a_page() -> None:
    pages = "\n".join(page.read_text() for page in [TOP / "README.md", *(TOP / "docs").rglob("*.md")])
    named = set(re.findall(r"--[a-z0-9]+(?:[.-][a-z0-9]+)*", pages)) | BY_VARIABLE
    found = list(_all())
    assert len(found) > 200
    assert [f"{path}: {' or '.join(sorted(names))}" for path, names in found if not names & named] == []
