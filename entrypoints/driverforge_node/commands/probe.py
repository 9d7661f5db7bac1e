"""`driverctl probe` behind a global option. Without one, cli.main() runs the probe before it imports anything for a parser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driverforge_node import probe

if TYPE_CHECKING:
    import argparse

    from driverforge_node.host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None: it is called by a kubelet."""


def run(args: argparse.Namespace, host: Host) -> int:  # noqa: ARG001  the shape of every command; a probe needs neither
    return probe.main([])
