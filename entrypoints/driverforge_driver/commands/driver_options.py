"""What the driver's commands share: their options, the question before a step, the printed plan."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Protocol, TextIO

from driverforge_driver.app import driver_life
from driverforge_driver.state.facts import Goal, WantedDriver
from driverforge_driver.state.wanted_driver import read_wanted
from driverforge_host.ports import Host
from driverforge_host.reconcile.loop import Ask
from driverforge_host.reconcile.outcomes import Done, Step, Steps


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of every command that changes the node."""
    parser.add_argument(
        "--plan",
        action="store_true",
        help="print what would be done now, and what is not known yet; change nothing",
    )
    parser.add_argument("--confirm", action="store_true", help="ask on the terminal before each step")
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="unload a driver, too, that the host loaded from a package of its own",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the commands that load the driver."""
    add_plan_arguments(parser)
    parser.add_argument(
        "--no-build",
        action="store_true",
        help="never compile: use modules of the image or of the node's cache",
    )
    parser.add_argument(
        "-j",
        "--jobs",
        type=int,
        default=0,
        metavar="N",
        help="compilers to run at once; default: one per processor that the cgroup's limit pays for",
    )
    parser.add_argument(
        "--kernel",
        metavar="RELEASE",
        default="",
        help="refuse to start where another kernel runs; default: the running one, whatever it is",
    )
    parser.add_argument(
        "--headers",
        metavar="DIR",
        default="",
        help="folder with the kernel's header packages, if modules are compiled; default: fetch them",
    )
    parser.add_argument(
        "--work-dir",
        metavar="DIR",
        default="",
        help="folder to compile in, with 1.5 GiB of space; default: /var/tmp/driverforge",
    )


def wanted(args: argparse.Namespace, host: Host, goal: Goal) -> WantedDriver:
    """The wanted state of this command line. Raises InputError, Unsupported."""
    return read_wanted(
        host,
        goal,
        take_over=args.take_over,
        kernel=args.kernel,
        may_build=not args.no_build,
        jobs=args.jobs,
        headers=absolute(args.headers),
        work=absolute(args.work_dir),
    )


def absolute(path: str) -> str:
    """A path of the command line, for programs that run in other folders; links in it stay. '' stays ''."""
    return str(Path.cwd() / path) if path else ""


class Life(Protocol):
    """What a command does with the driver, as `driver_life` has it."""

    def __call__(self, host: Host, wanted: WantedDriver, *, pid: int, ask: Ask | None) -> None: ...


def carry_out(args: argparse.Namespace, host: Host, wanted: WantedDriver, life: Life) -> int:
    """Print the plan with --plan, else live; with --confirm, the person at the terminal is asked."""
    if args.plan:
        print_plan(driver_life.plan(host, wanted))
    else:
        life(host, wanted, pid=os.getpid(), ask=ask_on(sys.stdin, sys.stdout) if args.confirm else None)
    return 0


def ask_on(answers: TextIO, out: TextIO) -> Ask:
    """Ask on `out` and read a line of `answers`: an empty line is a yes, the end of the input a no."""

    def ask(number: int, step: Step) -> bool:
        print(f"step {number}: {step.describe()} [Y/n]", file=out, flush=True)
        answer = answers.readline()
        return answer.strip().lower() in ("", "y", "yes") and bool(answer)

    return ask


def print_plan(plan: Steps | Done) -> None:
    """The stretch that can be decided now, and what has to be seen before the rest can be."""
    if isinstance(plan, Done):
        print("nothing to do")
        for line in plan.left:
            print(f"left as it is: {line}")
        return
    if plan.reason:
        print(f"because {plan.reason}")
    for number, step in enumerate(plan.steps, 1):
        print(f"step {number}: {step.describe()}")
    for text in plan.unknown:
        print(f"not known yet: {text}")
