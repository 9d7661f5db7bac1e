"""What `init` and `load` take on their command lines."""

from __future__ import annotations

import argparse
from pathlib import Path

from driverforge_node.driver.facts import Wanted
from driverforge_node.driver.session import wanted_state
from driverforge_node.host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plan",
        action="store_true",
        help="print what would be done now, and what is not known yet; change nothing",
    )
    parser.add_argument("--confirm", action="store_true", help="ask on the terminal before each step")
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
        help="processes for a compilation (default: one a processor)",
    )
    parser.add_argument(
        "--headers",
        metavar="DIR",
        default="",
        help="folder with the kernel's header packages, for a compilation; default: fetch them",
    )
    parser.add_argument(
        "--work-dir",
        metavar="DIR",
        default="",
        help="where to compile, about 1.5 GiB; default: /var/tmp/driverforge",
    )


def wanted(args: argparse.Namespace, host: Host, goal: str) -> Wanted:
    """The wanted state of this command line. Raises InputError, Unsupported."""
    return wanted_state(
        host,
        goal,
        may_build=not args.no_build,
        jobs=args.jobs,
        headers=absolute(args.headers),
        work=absolute(args.work_dir),
    )


def absolute(path: str) -> str:
    """A path of the command line, for programs that run in other folders; links in it stay. '' stays ''."""
    return str(Path.cwd() / path) if path else ""
