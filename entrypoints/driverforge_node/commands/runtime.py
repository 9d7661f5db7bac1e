"""driverctl runtime apply|revert: NVIDIA's handlers in the node's containerd."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from driverforge_node.host.ports import Host
    from driverforge_node.runtime.change import Plan
    from driverforge_node.runtime.inplace import Handler


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=("apply", "revert"), help="'apply' adds the handlers nvidia, nvidia-cdi and nvidia-legacy; 'revert' undoes that"
    )
    parser.add_argument("--plan", action="store_true", help="print the change of the file, its effect and the restart, and do nothing")
    parser.add_argument(
        "--socket", metavar="PATH", default="/run/containerd/containerd.sock", help="containerd's socket on the node; default: %(default)s"
    )
    parser.add_argument(
        "--config", metavar="FILE", default="", help="its configuration file on the node; default: the one that its command line names"
    )
    parser.add_argument("--toolkit-dir", metavar="DIR", default="/usr/local/nvidia/toolkit",
        help="folder on the node with nvidia-container-runtime; default: %(default)s")  # fmt: skip
    parser.add_argument("--restart-command", metavar="SH", default="",
        help="what restarts containerd, where systemd does not run it; runs on the node")  # fmt: skip


def run(args: argparse.Namespace, host: Host) -> int:
    require_toolkit_half()
    from driverforge_node.host.sockets import UnixSockets
    from driverforge_node.runtime import change, configure, journal
    from driverforge_node.runtime import inplace as containerd

    runtime = change.Runtime(host=host, sockets=UnixSockets(), socket=args.socket, restart_command=args.restart_command)
    handlers = containerd.nvidia_handlers(args.toolkit_dir)
    make = configure.apply_plan if args.action == "apply" else configure.revert_plan
    with nullcontext() if args.plan else exclusive(host):
        made = make(runtime, handlers, args.config)
        if made is None:
            print("nothing to revert: driverctl has not changed this node's containerd")
            return 0
        plan, entry = made
        if args.plan:
            print(change.describe(plan, runtime))
            return 0
        if args.action == "apply":
            warn_missing(host, handlers)
        change.carry_out(plan, runtime, entry)
        if args.action == "revert":
            journal.remove(host, entry.path)
    print(summary(plan))
    return 0


def require_toolkit_half() -> None:
    """Raises Unsupported where this interpreter or image has no toolkit half."""
    from importlib.util import find_spec

    from driverforge_core.errors import Unsupported

    missing = [name for name in ("tomllib", "tomlrt", "h2") if find_spec(name) is None]
    if missing:
        raise Unsupported(
            "runtime configuration is not part of this image",
            details=[f"Python {sys.version.split()[0]} has no {', '.join(missing)}"],
            resolution="use an image whose Python is 3.11 or newer (pip install 'driverforge[toolkit]' outside of images)",
        )


@contextmanager
def exclusive(host: Host) -> Iterator[None]:
    """Raises TemporaryFailure when another instance works on this node's runtime; its files stay as they are."""
    from driverforge_core.errors import TemporaryFailure
    from driverforge_node.runtime.journal import FOLDER

    host.node.make_dirs(FOLDER, mode=0o700)
    with host.node.lock(f"{FOLDER}/lock", text="driverctl runtime\n") as ours:
        if not ours:
            raise TemporaryFailure(
                "another driverctl changes this node's runtime now", resolution="wait for it to end, then run this again"
            )
        yield


def warn_missing(host: Host, handlers: tuple[Handler, ...]) -> None:
    from driverforge_node import log

    missing = [handler.binary for handler in handlers if not host.node.exists(handler.binary)]
    if missing:
        log.warning("programs of handlers are not on the node yet; containers with them will not start", missing=",".join(missing))


def summary(plan: Plan) -> str:
    if not plan.writes and not plan.restart:
        return "nothing to do"
    wrote = f"wrote {plan.daemon.config}" if plan.data is not None else f"removed {plan.daemon.config}"
    done = [wrote if plan.writes else "", "restarted containerd" if plan.restart else "no restart needed"]
    return ", ".join(word for word in done if word)
