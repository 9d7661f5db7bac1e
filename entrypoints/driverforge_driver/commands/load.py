"""`driverctl load`: load the kernel modules, make their device files, and exit. The root is not published."""

from __future__ import annotations

import argparse

from driverforge_driver.app import driver_life
from driverforge_driver.commands import driver_options
from driverforge_driver.state.facts import Goal
from driverforge_host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    driver_options.add_arguments(parser)


def run(args: argparse.Namespace, host: Host) -> int:
    """Exit status 0 where the driver is loaded, also where it was before."""
    wanted = driver_options.wanted(args, host, Goal.LOAD)
    return driver_options.carry_out(args, host, wanted, driver_life.load)
