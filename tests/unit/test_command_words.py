"""What a command line says reaches its command under a name with a type."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from driverforge_build.cli import cli


def commands(group: click.Group, context: click.Context) -> Iterator[click.Command]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, context)
        else:
            yield command


def test_a_command_names_every_word_that_it_takes() -> None:
    with click.Context(cli) as context:
        found = list(commands(cli, context))
    for command in found:
        assert command.callback is not None
        taken = inspect.signature(inspect.unwrap(command.callback)).parameters.values()
        assert [str(one) for one in taken if one.kind is one.VAR_KEYWORD or one.annotation == "Any"] == []
    assert len(found) > 15
