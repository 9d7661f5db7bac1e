"""`driverctl load`: load the kernel modules and make their devices, then exit. The driver's root is not published."""

from __future__ import annotations

import argparse
import os
import sys

from driverforge_core.errors import DriverforgeError
from driverforge_node import log
from driverforge_node.commands import start
from driverforge_node.driver.loop import drive, roll_back
from driverforge_node.driver.observe import observe
from driverforge_node.driver.plan import Blocked, next_steps
from driverforge_node.driver.session import exclusive, gate_for, print_plan
from driverforge_node.host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    start.add_arguments(parser)


def run(args: argparse.Namespace, host: Host) -> int:
    wanted = start.wanted(args, host, "load")
    if args.plan:
        return print_plan(host, wanted, sys.stdout)
    before = observe(host, wanted)
    plan = next_steps(before, wanted)
    if isinstance(plan, Blocked):
        raise plan.error
    with exclusive(host, os.getpid()):
        try:
            drive(host, wanted, gate=gate_for(host, confirm=args.confirm))
        except DriverforgeError as error:
            left = roll_back(host, wanted, before)
            error.details = (
                *error.details,
                *(f"left on this node: {line}" for line in left or ("nothing that was not there before",)),
            )
            raise
    log.info("loaded", driver=wanted.driver)
    return 0
