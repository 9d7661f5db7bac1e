"""`driverforge-operator crds`."""

from __future__ import annotations

import click

from driverforge_operator.commands.output import say


@click.command("crds")
@click.option("--apply", "applied", is_flag=True, help="Apply them to the cluster instead of printing them.")
def crds_command(*, applied: bool) -> int:
    """Print the definitions of ClusterPolicy and NVIDIADriver as YAML.

    `helm upgrade` leaves installed definitions as they are; the chart runs this with --apply before it.
    """
    from driverforge_operator.crd.schema import cluster_policy, nvidia_driver

    definitions = [cluster_policy(), nvidia_driver()]
    if not applied:
        import yaml

        say(yaml.safe_dump_all(definitions, sort_keys=False).rstrip("\n"))
        return 0
    from driverforge_operator.cluster.api import connect
    from driverforge_operator.state.kinds import DEFINITION

    server = connect("")
    for one in definitions:
        server.apply(DEFINITION, one)
        say(f"applied {one['metadata']['name']}")
    return 0
