"""The command line of `driverforge-operator`."""

from __future__ import annotations

import sys

import click

from driverforge_core import __version__
from driverforge_core.errors import DriverforgeError
from driverforge_operator.commands.cleanup import cleanup_command
from driverforge_operator.commands.crds import crds_command
from driverforge_operator.commands.doctor import doctor_command
from driverforge_operator.commands.explain import explain_command
from driverforge_operator.commands.output import complain
from driverforge_operator.commands.plan import plan_command
from driverforge_operator.commands.run import run_command
from driverforge_operator.commands.snapshot import snapshot_command
from driverforge_operator.commands.status import status_command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="driverforge-operator")
def cli() -> None:
    """Give each node of a cluster its NVIDIA driver and what goes with it.

    The cluster is the one of $KUBECONFIG, else of the pod that this runs in, else of ~/.kube/config.
    """


cli.add_command(run_command)
cli.add_command(plan_command)
cli.add_command(explain_command)
cli.add_command(status_command)
cli.add_command(snapshot_command)
cli.add_command(doctor_command)
cli.add_command(crds_command)
cli.add_command(cleanup_command)


def main() -> None:
    """Run one command line. A failure that is expected is one message on stderr, never a traceback."""
    try:
        status = cli.main(prog_name="driverforge-operator", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(64)
    except DriverforgeError as error:
        complain(error)
        sys.exit(error.exit_code)
    sys.exit(status if isinstance(status, int) else 0)
