"""`driverctl init`: load the driver, publish its root, stay until stopped."""

from __future__ import annotations

import argparse
import os
import sys

from driverforge_core.errors import DriverforgeError
from driverforge_node import log
from driverforge_node.commands import start
from driverforge_node.driver import paths, status
from driverforge_node.driver.facts import Facts, Wanted
from driverforge_node.driver.loop import drive, roll_back
from driverforge_node.driver.observe import observe
from driverforge_node.driver.plan import Blocked, Done, next_steps
from driverforge_node.driver.session import exclusive, gate_for, print_plan
from driverforge_node.driver.stop import stop
from driverforge_node.driver.supervise import Supervised, supervise
from driverforge_node.host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    start.add_arguments(parser)


def run(args: argparse.Namespace, host: Host) -> int:
    """Exit status 0 after a stop signal, also when the driver stays loaded because it is in use (the holders are logged)."""
    wanted = start.wanted(args, host, "serve")
    if args.plan:
        return print_plan(host, wanted, sys.stdout)
    before = observe(host, wanted)
    plan = next_steps(before, wanted)
    if isinstance(plan, Blocked):
        raise plan.error
    pid = os.getpid()
    host.clock.wait(0)  # from here on a stop signal ends the run in an orderly way
    with exclusive(host, pid):
        status.write(host, phase="starting", pid=pid, facts=before, wanted=wanted)
        try:
            done = drive(host, wanted, gate=gate_for(host, confirm=args.confirm))
        except DriverforgeError as error:
            if host.clock.wait(
                0
            ):  # between two steps, or within a compilation, where it reads as a failure of the compiler
                log.warning(error.brief)
                return leave(host, wanted, pid)
            left = roll_back(host, wanted, before)
            error.details = (
                *error.details,
                *(f"left on this node: {line}" for line in left or ("nothing that was not there before",)),
            )
            raise
        try:
            serve(host, wanted, pid, done)
        except DriverforgeError as error:
            log.warning("stopping after an error", problem=error.brief)
            leave(host, wanted, pid)
            raise
        return leave(host, wanted, pid)


def serve(host: Host, wanted: Wanted, pid: int, done: Done) -> None:
    """From ready to the stop signal."""
    facts: Facts = observe(host, wanted)
    log.info("ready", driver=wanted.driver, type=facts.loaded_type, kernel=facts.release, root=paths.ROOT)
    if not facts.root_shared:
        log.warning(
            "the host does not see the driver's root", fix="mount /run/nvidia with Bidirectional propagation"
        )

    def changed(daemons: tuple[Supervised, ...]) -> None:
        status.write(host, phase="ready", pid=pid, facts=facts, wanted=wanted, done=done, daemons=daemons)

    signal = supervise(host, changed)
    log.info("stopping", signal=signal)


def leave(host: Host, wanted: Wanted, pid: int) -> int:
    """The way out, with a status file that no longer says ready. One that cannot be written keeps nobody here."""
    try:
        status.write(host, phase="stopping", pid=pid, facts=observe(host, wanted), wanted=wanted)
    except DriverforgeError as error:
        log.warning("the status file does not say that we stop", problem=error.brief)
    return stop(host, wanted)
