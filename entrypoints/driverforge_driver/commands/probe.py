"""`driverctl probe` behind a global option, as in `driverctl --log-format json probe`.

Without a global option cli.main() runs the probe itself, before anything for a parser is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from driverforge_host import probe

if TYPE_CHECKING:
    import argparse

    from driverforge_host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None: it is called by a kubelet."""


# every command has this shape; a probe needs neither argument
def run(args: argparse.Namespace, host: Host) -> int:  # noqa: ARG001
    return probe.main([])
