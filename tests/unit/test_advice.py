"""Printed commands mean what the user's own command meant: they parse as options of that command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

import click
import pytest

from driverforge_build.advice import Given
from driverforge_build.cli import cli

GIVEN = Given(
    matrix=Path("my site.yaml"),
    lock=Path("a;b.json"),
    bases={"debian12": "registry.site/debian:12"},
    artifacts={"amd64": "/srv/nvidia's files"},
)


def test_defaults_are_left_out() -> None:
    assert (
        Given().command("lock", select=["debian12-*"], skip=["*-arm64-*"])
        == "driverforge lock --select 'debian12-*' --skip '*-arm64-*'"
    )


@pytest.mark.parametrize("name", ["lock", "build", "push"])
def test_a_command_is_given_what_it_takes(name: Literal["lock", "build", "push"]) -> None:
    program, said, *words = shlex.split(GIVEN.command(name, select=["a-*"], skip=["b"]))
    assert (program, said) == ("driverforge", name)
    with click.Context(cli) as context:
        command = cli.get_command(context, name)
        assert command is not None
        registry = ["--registry", "registry.site/nvidia"] if name == "push" else []
        given = command.make_context(name, [*words, *registry], parent=context).params
    assert (given["matrix"], given["lock"], given["select"], given["skip"]) == (
        GIVEN.matrix,
        GIVEN.lock,
        ("a-*",),
        ("b",),
    )
    if name != "lock":
        assert (given["bases"], given["artifacts"]) == (GIVEN.bases, GIVEN.artifacts)
