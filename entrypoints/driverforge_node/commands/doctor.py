"""driverctl doctor: known problems of the node's container runtime, CDI specs and toolkit, with the command that cures each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from driverforge_node.host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument(
        "--root",
        metavar="DIR",
        default="",
        help="look at a copy of a node's files in DIR; no process is asked or started",
    )
    parser.add_argument(
        "--log", metavar="FILE", action="append", default=[], help="a log to look at, too; may be repeated"
    )
    parser.add_argument("--toolkit-install-dir", metavar="DIR", default="",
        help="where the toolkit is on the node ($TOOLKIT_INSTALL_DIR); default: /usr/local/nvidia")  # fmt: skip


def run(args: argparse.Namespace, host: Host) -> int:
    """Exit status 0: nothing found; 1: something was."""
    from driverforge_core.errors import NotPermitted, UsageError
    from driverforge_node.commands.runtime import require_toolkit_half

    require_toolkit_half()
    from driverforge_node.doctor import catalogue, gather
    from driverforge_node.host.sockets import UnixSockets
    from driverforge_node.runtime import environment

    missing = [path for path in (args.root, *args.log) if path and not host.files.exists(path)]
    if missing:
        raise UsageError(
            "there is no such file", details=missing, resolution="name a folder with --root, files with --log"
        )
    user = host.processes.effective_user()
    if user != 0 and not args.root:
        raise NotPermitted(
            "looking at a node needs root",
            details=[f"effective user id {user}"],
            resolution="run it with sudo, or in a privileged pod with hostPID; for a copy of a node's files that you may read: --root DIR",
        )
    folder = (args.toolkit_install_dir or environment.install_dir(host.environ)).rstrip("/")
    if args.root:
        facts = gather.of_dump(host, args.root, install_dir=folder, logs=args.log)
    else:
        facts = gather.of_node(host, UnixSockets(), install_dir=folder, logs=args.log)
    found = catalogue.examine(facts)
    if args.json:
        import json

        print(json.dumps(catalogue.as_document(found, facts), indent=2))
    else:
        print(catalogue.as_text(found, facts))
    return 1 if found else 0
