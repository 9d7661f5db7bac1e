"""driverctl runtime plan|apply|revert|status: NVIDIA's handlers in the node's container runtime."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError, BooleanOptionalAction
from typing import TYPE_CHECKING, Any

from driverforge_core.errors import InputError, Unsupported, UsageError
from driverforge_host.adapters.sockets import UnixSockets
from driverforge_toolkit.app.configure_runtime import RuntimeAction, change_runtime, plan_of
from driverforge_toolkit.runtime.transaction import summary
from driverforge_toolkit.runtime.transaction.change_plan import RuntimeSystem
from driverforge_toolkit.toolkit.runtime_request import request_of_command

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from driverforge_host.ports import Host
    from driverforge_toolkit.runtime.request import RuntimeRequest
    from driverforge_toolkit.runtime.transaction.change_plan import ChangePlan


LONGEST = 900  # seconds; for the node's own restore a driverctl that waits longer is hung
SH = "a command that restarts the runtime, where driverctl does not know what runs it; it runs on the node"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("plan", "apply", "revert", "status"),
        help="'apply' adds the handlers nvidia, nvidia-cdi and nvidia-legacy, 'revert' undoes that; 'plan' "
        "is 'apply --plan'",
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="print the change of the files, its effect and the restart, and do nothing",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument(
        "--strip", action="store_true", help="revert: take NVIDIA's handlers out that somebody else wrote"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="apply: try a change again that the runtime has refused before",
    )
    where = parser.add_argument_group("the runtime (found automatically where these are not given)")
    where.add_argument(
        "--runtime", choices=("containerd", "crio", "docker"), default="", help="its kind ($RUNTIME)"
    )
    where.add_argument(
        "--socket", metavar="PATH", default="", help="its socket on the node ($RUNTIME_SOCKET)"
    )
    where.add_argument(
        "--config", metavar="FILE", default="", help="its configuration file on the node ($RUNTIME_CONFIG)"
    )
    where.add_argument(
        "--drop-in",
        metavar="FILE",
        default="",
        help="the file that is ours, on the node ($RUNTIME_DROP_IN_CONFIG)",
    )
    where.add_argument(
        "--executable-path",
        dest="binary",
        metavar="FILE",
        default="",
        help="its program ($RUNTIME_EXECUTABLE_PATH)",
    )
    where.add_argument(
        "--restart-mode",
        choices=("signal", "systemd", "none"),
        default="",
        help="how it is restarted; 'none' writes and leaves it to you ($RUNTIME_RESTART_MODE)",
    )
    where.add_argument("--restart-command", metavar="SH", default="", help=f"{SH} ($TOOLKIT_RESTART_COMMAND)")
    where.add_argument(
        "--patience",
        type=seconds,
        metavar="SECONDS",
        default=0.0,
        help="how long a restarted runtime may take to answer before the old files are put back; 60, "
        "longer for k3s ($TOOLKIT_PATIENCE)",
    )
    what = parser.add_argument_group("what it gets")
    what.add_argument(
        "--toolkit-dir",
        metavar="DIR",
        default="",
        help="the node's folder with nvidia-container-runtime ($TOOLKIT_INSTALL_DIR/toolkit); "
        "/usr/local/nvidia/toolkit",
    )
    what.add_argument(
        "--runtime-name",
        metavar="NAME",
        default="",
        help="another name for the handler nvidia ($NVIDIA_RUNTIME_NAME)",
    )
    _switch(
        what,
        "--default",
        "make it the default handler, or no longer the default one; without either, the default stays "
        "($NVIDIA_RUNTIME_SET_AS_DEFAULT)",
    )
    _switch(what, "--cdi", "switch the runtime's own CDI support on ($RUNTIME_ENABLE_CDI)")
    what.add_argument(
        "--runtime-config-override",
        metavar="JSON",
        default="",
        help='more for each handler, as {"options": {"SystemdCgroup": true}} ($RUNTIME_CONFIG_OVERRIDE)',
    )


def seconds(text: str) -> float:
    """A time to wait, under a quarter of an hour. Raises ArgumentTypeError, whose text argparse shows."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < LONGEST:
        raise ArgumentTypeError(f"{text}: give seconds, above 0 and under {LONGEST}")
    return value


def _switch(group: argparse._ArgumentGroup, name: str, text: str) -> None:
    group.add_argument(name, action=BooleanOptionalAction, default=None, help=text)


def run(args: argparse.Namespace, host: Host) -> int:
    system = RuntimeSystem(host=host, sockets=UnixSockets(), request=request_from(args, host))
    if args.action == "status":
        # an apply with nothing to do goes without what a status reads
        from driverforge_toolkit.runtime.transaction.runtime_status import runtime_status, status_text

        found = runtime_status(system)
        _print(found, status_text(found), as_json=args.json)
        return InputError.exit_code if found["broken"] else 0
    if args.strip and args.action != "revert":
        raise UsageError("--strip belongs to revert", resolution="driverctl runtime revert --strip")
    if args.force and args.action != "apply":
        raise UsageError("--force belongs to apply", resolution="driverctl runtime apply --force")
    reverting = RuntimeAction.STRIP if args.strip else RuntimeAction.REVERT
    action = reverting if args.action == "revert" else RuntimeAction.APPLY
    if args.plan or args.action == "plan":
        plan = plan_of(system, action)
        if plan is not None:
            _print(summary.plan_object(plan, system), summary.plan_text(plan, system), as_json=args.json)
    else:
        plan = change_runtime(
            system, action, lambda plan: _print_notes(plan, as_json=args.json), force=args.force
        )
        if plan is not None:
            done = summary.done_text(plan, system)
            _print(summary.plan_object(plan, system) | {"done": done}, done, as_json=args.json)
    if plan is None:
        from driverforge_toolkit.runtime.transaction.runtime_status import runtime_status

        said = nothing_to_revert(runtime_status(system))
        _print({"done": said}, said, as_json=args.json)
    return 0


def nothing_to_revert(found: Mapping[str, Any]) -> str:
    """Why; and whose handlers these are, where NVIDIA's are there all the same. `found` is the status.

    Raises Unsupported where the runtime cannot serve pods with its files: that is no success.
    """
    if found["fault"]:
        raise Unsupported(
            f"nothing to revert, and {found['runtime']['kind']} cannot serve pods with its files",
            details=found["fault"],
            resolution="where the default is a handler of NVIDIA's: `driverctl runtime apply` writes the "
            "handlers, `driverctl runtime revert --strip` takes the default out; else name another default, "
            "and restart the runtime; nothing was changed",
        )
    foreign = found["foreign"]
    said = "nothing to revert: driverctl has not changed this node's container runtime"
    if foreign:
        said += (
            f"\n{', '.join(foreign)}: written by somebody else, probably NVIDIA's toolkit, nvidia-ctk or "
            "k3s itself"
        )
        said += "\n`driverctl runtime revert --strip` takes them out"
    return said


def _print_notes(plan: ChangePlan, *, as_json: bool) -> None:
    """The notes of a plan that is about to be carried out; the JSON object has them."""
    for note in () if as_json else plan.notes:
        print(note)


def _print(data: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        text = json.dumps(data, indent=2)
    print(text)


def request_from(args: argparse.Namespace, host: Host) -> RuntimeRequest:
    """Options first, then the environment. Raises UsageError, InputError, Unsupported."""
    given = {
        "runtime": args.runtime,
        "socket": args.socket,
        "config": args.config,
        "drop_in": args.drop_in,
        "executable_path": args.binary,
        "restart_mode": args.restart_mode,
        "restart_command": args.restart_command,
        "patience": str(args.patience or ""),
        "runtime_name": args.runtime_name,
        "set_as_default": _word(args.default),
        "enable_cdi_in_runtime": _word(args.cdi),
        "config_override": args.runtime_config_override,
    }
    flags = {name: text for name, text in given.items() if text}
    return request_of_command(host, flags, folder=args.toolkit_dir)


def _word(switch: bool | None) -> str:
    """A switch as the options' table has it, '' where nothing is said."""
    return "" if switch is None else str(switch).lower()
