"""driverctl toolkit install|run|watch|gc|status: NVIDIA's container toolkit on the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driverforge_host.adapters.sockets import UnixSockets
from driverforge_toolkit.app.toolkit_install import collect_toolkit, install_toolkit
from driverforge_toolkit.app.toolkit_run import parts_of, run_toolkit
from driverforge_toolkit.app.toolkit_watch import watch_toolkit
from driverforge_toolkit.toolkit.install import installed_text
from driverforge_toolkit.toolkit.options import OPTIONS
from driverforge_toolkit.toolkit.releases import describe_users
from driverforge_toolkit.toolkit.settings import settings_of
from driverforge_toolkit.toolkit.toolkit_status import observe_toolkit, status_json, status_text

if TYPE_CHECKING:
    import argparse

    from driverforge_host.ports import Host
    from driverforge_toolkit.toolkit.settings import ToolkitSettings

ACTIONS = ("install", "run", "watch", "gc", "status")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=ACTIONS,
        help="'install' puts NVIDIA's programs onto the node, 'run' also configures CDI and the container "
        "runtime and stays, 'watch' stays without installing or configuring anything, 'gc' removes "
        "releases that nothing uses, 'status' shows what is there",
    )
    parser.add_argument("--json", action="store_true", help="status: print JSON")
    for option in OPTIONS:
        meaning = option.meaning.replace("`", "").replace("%", "%%")
        if option.kind == "bool":
            parser.add_argument(
                *option.flags, dest=option.name, nargs="?", const="true", metavar="BOOL", help=meaning
            )
        elif option.kind == "list":
            parser.add_argument(
                *option.flags, dest=option.name, action="append", metavar="LIST", help=meaning
            )
        else:
            parser.add_argument(*option.flags, dest=option.name, metavar="TEXT", help=meaning)


def run(args: argparse.Namespace, host: Host) -> int:
    settings = settings_from(args, host)
    return {"install": install, "run": serve, "watch": watch, "gc": gc, "status": status}[args.action](
        args, host, settings
    )


def settings_from(args: argparse.Namespace, host: Host) -> ToolkitSettings:
    """Raises InputError, Unsupported."""
    given = {
        option.name: getattr(args, option.name)
        for option in OPTIONS
        if getattr(args, option.name) is not None
    }
    return settings_of(
        {name: ",".join(value) if isinstance(value, list) else value for name, value in given.items()},
        host.environ,
    )


def serve(_: argparse.Namespace, host: Host, settings: ToolkitSettings) -> int:
    return run_toolkit(host, settings, parts_of(host, UnixSockets(), settings))


def watch(_: argparse.Namespace, host: Host, settings: ToolkitSettings) -> int:
    watch_toolkit(host, UnixSockets(), settings)
    return 0


def install(_: argparse.Namespace, host: Host, settings: ToolkitSettings) -> int:
    print(installed_text(install_toolkit(host, settings)))
    return 0


def gc(_: argparse.Namespace, host: Host, settings: ToolkitSettings) -> int:
    gone, left = collect_toolkit(host, settings)
    print("\n".join(f"removed {name}" for name in gone) or "nothing to remove")
    for release in left:
        print(f"kept {release.name}: {describe_users(release)}")
    return 0


def status(args: argparse.Namespace, host: Host, settings: ToolkitSettings) -> int:
    """Exit status 0 whatever there is to show."""
    found = observe_toolkit(host, settings)
    print(status_json(found) if args.json else status_text(found))
    return 0
