"""driverctl runtime plan|apply|revert|status: NVIDIA's handlers in the node's container runtime."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from driverforge_node.host.ports import Host
    from driverforge_node.runtime.change import Plan, System
    from driverforge_node.runtime.request import Request

SH = "what restarts the runtime, where nothing that driverctl knows runs it; runs on the node"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("plan", "apply", "revert", "status"),
        help="'apply' adds the handlers nvidia, nvidia-cdi and nvidia-legacy, 'revert' undoes that; 'plan' is 'apply --plan'")  # fmt: skip
    parser.add_argument(
        "--plan",
        action="store_true",
        help="print the change of the files, its effect and the restart, and do nothing",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument(
        "--strip", action="store_true", help="revert: take NVIDIA's handlers out that somebody else wrote"
    )
    where = parser.add_argument_group("the runtime; found by itself where these are not given")
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
    where.add_argument("--restart-mode", choices=("signal", "systemd", "none"), default="",
        help="how it is restarted; 'none' writes and leaves it to you ($RUNTIME_RESTART_MODE)")  # fmt: skip
    where.add_argument("--restart-command", metavar="SH", default="", help=f"{SH} ($TOOLKIT_RESTART_COMMAND)")
    where.add_argument("--patience", type=seconds, metavar="SECONDS", default=0.0,
        help="how long a restarted runtime may take to answer before the old files are put back; 60, longer for k3s")  # fmt: skip
    what = parser.add_argument_group("what it gets")
    what.add_argument("--toolkit-dir", metavar="DIR", default="",
        help="the node's folder with nvidia-container-runtime ($TOOLKIT_INSTALL_DIR/toolkit); /usr/local/nvidia/toolkit")  # fmt: skip
    what.add_argument(
        "--runtime-name",
        metavar="NAME",
        default="",
        help="another name for the handler nvidia ($NVIDIA_RUNTIME_NAME)",
    )
    _switch(
        what,
        "--default",
        "make it the default handler, or give that up; without: leave it as it is ($NVIDIA_RUNTIME_SET_AS_DEFAULT)",
    )
    _switch(what, "--cdi", "switch the runtime's own CDI support on ($RUNTIME_ENABLE_CDI)")
    what.add_argument("--runtime-config-override", metavar="JSON", default="",
        help='more for each handler, as {"options": {"SystemdCgroup": true}} ($RUNTIME_CONFIG_OVERRIDE)')  # fmt: skip


def seconds(text: str) -> float:
    """A time to wait, under a quarter of an hour. Raises ValueError, as argparse wants it."""
    if not 0 < (value := float(text)) < 900:
        raise ValueError(text)
    return value


def _switch(group: argparse._ArgumentGroup, name: str, text: str) -> None:
    from argparse import BooleanOptionalAction

    group.add_argument(name, action=BooleanOptionalAction, default=None, help=text)


def run(args: argparse.Namespace, host: Host) -> int:
    require_toolkit_half()
    from driverforge_node.host.sockets import UnixSockets
    from driverforge_node.runtime.change import System

    system = System(host=host, sockets=UnixSockets(), request=request_of(args, host))
    if args.action == "status":
        show_status(system, as_json=args.json)
        return 0
    if args.plan or args.action == "plan":
        plan = make_plan(system, args)
        if plan is not None:
            from driverforge_node.runtime import report

            _print(report.of_plan(plan, system), report.plan_text(plan, system), as_json=args.json)
        return 0
    from driverforge_node.runtime import change, configure, report
    from driverforge_node.runtime.lock import exclusive

    with exclusive(host):
        configure.settle(system)
        plan = make_plan(system, args)
        if plan is None:
            return 0
        if args.action == "apply":
            report.warn_missing(host, plan)
        for note in () if args.json else plan.notes:  # the object has them
            print(note)
        change.carry_out(plan, system)
    _print(
        report.of_plan(plan, system) | {"done": report.summary(plan, system)},
        report.summary(plan, system),
        as_json=args.json,
    )
    return 0


def make_plan(system: System, args: argparse.Namespace) -> Plan | None:
    """None, after it was said why, where there is nothing to revert."""
    from driverforge_core.errors import UsageError
    from driverforge_node.runtime import configure

    if args.strip and args.action != "revert":
        raise UsageError("--strip belongs to revert", resolution="driverctl runtime revert --strip")
    if args.action != "revert":
        return configure.apply_plan(system)
    plan = configure.revert_plan(system)
    if plan is None and args.strip:
        plan = configure.strip_plan(system)
    if plan is None:
        said = nothing_to_revert(system)
        _print({"done": said}, said, as_json=args.json)
    return plan


def nothing_to_revert(system: System) -> str:
    """Why; and whose handlers these are, where NVIDIA's are there all the same."""
    from driverforge_node.runtime import report

    found = report.state(system)["foreign"]
    said = "nothing to revert: driverctl has not changed this node's container runtime"
    if found:
        said += f"\n{', '.join(found)}: there by somebody else, probably NVIDIA's toolkit, nvidia-ctk or k3s itself"
        said += "\n`driverctl runtime revert --strip` takes them out"
    return said


def show_status(system: System, *, as_json: bool) -> None:
    from driverforge_node.runtime import report

    found = report.state(system)
    _print(found, report.state_text(found), as_json=as_json)


def _print(data: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        import json

        text = json.dumps(data, indent=2)
    print(text)


def request_of(args: argparse.Namespace, host: Host) -> Request:
    """Options first, then the environment. Raises UsageError, InputError, Unsupported."""
    from driverforge_core.errors import UsageError
    from driverforge_node.runtime import environment
    from driverforge_node.runtime import request as asked
    from driverforge_node.runtime.model import RUNC

    said = asked.from_environment(host)
    values, given = {}, {}
    for name in ("runtime", "socket", "config", "drop_in", "binary", "restart_mode", "restart_command"):
        option = getattr(args, name)
        values[name], given[name] = (
            (option, f"--{name.replace('_', '-')}") if option else said.get(name, ("", ""))
        )
    if values["runtime"] not in ("", *asked.KINDS) or values["restart_mode"] not in ("", *asked.MODES):
        raise UsageError(
            f"RUNTIME={values['runtime']}, RUNTIME_RESTART_MODE={values['restart_mode']}: not both of these are known",
            details=[
                f"RUNTIME is one of {', '.join(asked.KINDS)}",
                f"RUNTIME_RESTART_MODE is one of {', '.join(asked.MODES)}",
            ],
            resolution="correct the environment; nothing was changed",
        )
    folder = args.toolkit_dir or f"{environment.install_dir(host.environ)}/toolkit"
    _require_absolute(
        {
            **{name: (values[name], given[name]) for name in ("socket", "config", "drop_in")},
            "folder": (folder, "--toolkit-dir"),
        }
    )
    wanted = asked.wanted(
        folder=folder,
        name=args.runtime_name or environment.first(host.environ, environment.NAMES)[1] or "nvidia",
        default=_flag(args.default, host, environment.DEFAULTS),
        cdi=bool(_flag(args.cdi, host, (*environment.CDI_IN_RUNTIME, *environment.CDI_ENABLED))),
        prefixes=[
            prefix for prefix in environment.first(host.environ, environment.PREFIXES)[1].split(",") if prefix
        ],
        runtime_type=environment.first(host.environ, environment.TYPES)[1] or RUNC,
        override=args.runtime_config_override or environment.first(host.environ, environment.OVERRIDES)[1],
    )
    return asked.Request(wanted=wanted, given=given, patience=args.patience, **values)


def _require_absolute(paths: dict[str, tuple[str, str]]) -> None:
    """Raises UsageError: they are the node's, which has no working folder, and stay in the journal and in the runtime's files."""
    from driverforge_core.errors import UsageError

    wrong = [
        f"{origin}: {path!a}"
        for path, origin in paths.values()
        if path and (not path.startswith("/") or not path.isprintable())
    ]
    if wrong:
        raise UsageError(
            "a path on the node is absolute",
            details=wrong,
            resolution="write it whole, from /; nothing was changed",
        )


def _flag(option: bool | None, host: Host, variables: tuple[str, ...]) -> bool | None:
    """What the option or the environment says; None where neither does."""
    from driverforge_node.runtime.environment import first
    from driverforge_node.runtime.request import truth

    variable, value = first(host.environ, variables)
    return option if option is not None or not value else truth(value, variable)


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
