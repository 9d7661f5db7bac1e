"""`driverforge-operator cleanup`."""

from __future__ import annotations

import click

from driverforge_operator.commands.options import namespace_option
from driverforge_operator.commands.output import say


@click.command("cleanup")
@namespace_option
@click.option(
    "--custom-resources",
    is_flag=True,
    help="Delete all ClusterPolicy and NVIDIADriver resources too, and their definitions.",
)
def cleanup_command(*, namespace: str, custom_resources: bool) -> int:
    """Take back what `run` made, once it does not run any more.

    Objects with the label app.kubernetes.io/managed-by=driverforge-operator are deleted, and labels and
    annotations that we wrote are taken off the nodes; the server says which those are (managedFields). What
    stays is listed.
    """
    from driverforge_operator.app.cleanup import clean_up
    from driverforge_operator.cluster.api import connect

    for line in clean_up(connect(namespace), custom_resources=custom_resources):
        say(line)
    return 0
