"""driverctl toolkit install|run|watch|gc|status: NVIDIA's container toolkit on the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from driverforge_node.host.ports import Host
    from driverforge_node.toolkit.settings import Settings

ACTIONS = ("install", "run", "watch", "gc", "status")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from driverforge_node.toolkit.options import OPTIONS

    parser.add_argument("action", choices=ACTIONS,
        help="'install' puts NVIDIA's programs onto the node, 'run' also configures CDI and the container runtime and stays, "
        "'watch' stays without installing or configuring anything, "
        "'gc' removes releases that nothing uses, 'status' shows what is there")  # fmt: skip
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
    from driverforge_node.commands.runtime import require_toolkit_half

    require_toolkit_half()
    settings = settings_of(args, host)
    return {"install": install, "run": serve, "watch": watch, "gc": gc, "status": status}[args.action](
        args, host, settings
    )


def settings_of(args: argparse.Namespace, host: Host) -> Settings:
    """Raises InputError, Unsupported."""
    from driverforge_node.toolkit.options import OPTIONS
    from driverforge_node.toolkit.settings import parse

    given = {
        option.name: getattr(args, option.name)
        for option in OPTIONS
        if getattr(args, option.name) is not None
    }
    return parse(
        {name: ",".join(value) if isinstance(value, list) else value for name, value in given.items()},
        host.environ,
    )


def serve(_: argparse.Namespace, host: Host, settings: Settings) -> int:
    from driverforge_node.host.sockets import UnixSockets
    from driverforge_node.toolkit import lifetime
    from driverforge_node.toolkit.parts import parts_of

    return lifetime.serve(host, settings, parts_of(host, UnixSockets(), settings))


def watch(_: argparse.Namespace, host: Host, settings: Settings) -> int:
    from driverforge_node.host.sockets import UnixSockets
    from driverforge_node.toolkit.parts import watch_alone

    watch_alone(host, UnixSockets(), settings)
    return 0


def install(_: argparse.Namespace, host: Host, settings: Settings) -> int:
    from driverforge_node.toolkit import install as installing
    from driverforge_node.toolkit.wanted import wanted

    with installing.exclusive(host):
        done = installing.install(host, wanted(host, settings))
    print(installing.summary(done))
    return 0


def gc(_: argparse.Namespace, host: Host, settings: Settings) -> int:
    from driverforge_node.toolkit import collect
    from driverforge_node.toolkit.install import exclusive
    from driverforge_node.toolkit.wanted import layout_of

    with exclusive(host):
        gone = collect.collect(host, layout_of(settings))
    print("\n".join(f"removed {name}" for name in gone) or "nothing to remove")
    for release in collect.releases(host, layout_of(settings)):
        if not release.current:
            print(f"kept {release.name}: {collect.describe_users(release)}")
    return 0


def status(args: argparse.Namespace, host: Host, settings: Settings) -> int:
    """Exit status 0 whatever there is to show."""
    from driverforge_node.toolkit import state

    found = state.observe(host, settings)
    print(state.as_json(found) if args.json else state.as_text(found))
    return 0
