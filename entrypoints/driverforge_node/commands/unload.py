"""`driverctl unload`: unload the kernel modules and unmount the driver's root, or refuse with every holder named."""

from __future__ import annotations

import argparse
import os
import sys

from driverforge_node import log
from driverforge_node.driver.loop import drive
from driverforge_node.driver.observe import observe
from driverforge_node.driver.plan import Blocked, next_steps
from driverforge_node.driver.session import exclusive, gate_for, print_plan, wanted_state
from driverforge_node.host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plan",
        action="store_true",
        help="print what would be done now, and what is not known yet; change nothing",
    )
    parser.add_argument("--confirm", action="store_true", help="ask on the terminal before each step")


def run(args: argparse.Namespace, host: Host) -> int:
    """Exit status 75 with the holders when the driver is in use: nothing is stopped or unloaded then."""
    wanted = wanted_state(host, "absent")
    if args.plan:
        return print_plan(host, wanted, sys.stdout)
    plan = next_steps(observe(host, wanted), wanted)
    if isinstance(plan, Blocked):
        raise plan.error
    with exclusive(host, os.getpid()):
        drive(host, wanted, gate=gate_for(host, confirm=args.confirm))
    log.info("unloaded")
    return 0
