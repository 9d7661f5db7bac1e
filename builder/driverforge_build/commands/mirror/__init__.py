"""`driverforge mirror`: what a closed cluster needs, by digest, and why."""

from __future__ import annotations

import click

from driverforge_build.commands.mirror import copy, explain, lock, packages, prune, rewrite, verify


@click.group("mirror")
def command() -> None:
    """Find out which images a closed cluster needs, and look after a mirror that holds them."""


for _command in (
    lock.lock,
    explain.explain,
    rewrite.rewrite,
    copy.copy,
    packages.packages,
    verify.verify,
    verify.inventory,
    prune.prune,
):
    command.add_command(_command)
