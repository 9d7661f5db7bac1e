"""`driverforge mirror`: what a closed cluster needs, by digest, and why."""

from __future__ import annotations

import click

from driverforge_build.commands.mirrorcopy import copy
from driverforge_build.commands.mirrorexplain import explain
from driverforge_build.commands.mirrorlock import lock
from driverforge_build.commands.mirrorpackages import packages
from driverforge_build.commands.mirrorprune import prune
from driverforge_build.commands.mirrorrewrite import rewrite
from driverforge_build.commands.mirrorverify import inventory, verify


@click.group("mirror")
def command() -> None:
    """Find out which images a closed cluster needs, and look after a mirror that holds them."""


for _command in (lock, explain, rewrite, copy, packages, verify, inventory, prune):
    command.add_command(_command)
