"""`driverctl load`: load the kernel modules, make their device files, and exit. The root is not published."""

from __future__ import annotations

import argparse
import os

from driverforge_driver.app import driver_life
from driverforge_driver.commands import driver_options
from driverforge_driver.state.facts import Goal
from driverforge_host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    driver_options.add_arguments(parser)


def run(args: argparse.Namespace, host: Host) -> int:
    """Exit status 0 where the driver is loaded, also where it was before."""
    wanted = driver_options.wanted(args, host, Goal.LOAD)
    if args.plan:
        driver_options.print_plan(driver_life.plan(host, wanted))
    else:
        driver_life.load(host, wanted, pid=os.getpid(), ask=driver_options.asker(args))
    return 0
