"""`driverctl unload`: unload the modules and unmount the root, or name everybody who uses them."""

from __future__ import annotations

import argparse

from driverforge_driver.app import driver_life
from driverforge_driver.commands import driver_options
from driverforge_driver.state.facts import Goal
from driverforge_driver.state.wanted_driver import read_wanted
from driverforge_host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    driver_options.add_plan_arguments(parser)


def run(args: argparse.Namespace, host: Host) -> int:
    """Exit status 75 where the driver is in use. Its holders are named, and nothing is touched."""
    wanted = read_wanted(host, Goal.ABSENT, take_over=args.take_over)
    return driver_options.carry_out(args, host, wanted, driver_life.unload)
