"""The commands of our programs with their options, read off their parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import click

from driverctl import cli as node
from driverctl.halves import SUBCOMMANDS
from driverforge_build import cli as builder
from driverforge_operator import cli as operator


@dataclass
class Command:
    """A command. `options` are groups of names, one an option; `words` what may stand in its first place."""

    options: list[set[str]] = field(default_factory=list)
    words: dict[str, Command] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        return set().union(*self.options) | {"--help"}


def programs() -> dict[str, Command]:
    whole = Command(options=[{"--version"}, {"--log-format"}])
    for name in SUBCOMMANDS:
        read = _of_argparse(node.build_parser(name))
        whole.words[name] = read.words[name]
    return {
        "driverforge": _of_click(builder.cli),
        "driverforge-operator": _of_click(operator.cli),
        "driverctl": whole,
    }


def walk(path: str, command: Command) -> Iterator[tuple[str, set[str]]]:
    """Each option with its command's words."""
    for names in command.options:
        yield path, names
    for word, below in command.words.items():
        if below is not command:
            yield from walk(f"{path} {word}", below)


def _long(names: Iterable[str], hidden: object) -> set[str]:
    return set() if hidden else set(names)


def _of_click(command: click.Command) -> Command:
    found = Command()
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            found.options.append({*option.opts, *option.secondary_opts})
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found.words[name] = _of_click(below)
    return found


def _of_argparse(parser: argparse.ArgumentParser) -> Command:
    found = Command()
    for action in parser._actions:  # argparse has no other list of them
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                found.words[name] = _of_argparse(child)
        elif action.option_strings and action.help != argparse.SUPPRESS:
            found.options.append(set(action.option_strings))
        elif action.choices is not None:
            found.words |= {str(choice): found for choice in action.choices}
    return found
