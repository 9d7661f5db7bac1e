"""`driverctl peermem serve|probe`: reload_nvidia_peermem and probe_nvidia_peermem of NVIDIA's images."""

from __future__ import annotations

import argparse
import sys

from driverforge_driver.app import peermem_sidecar
from driverforge_driver.state import variables
from driverforge_host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("serve", "probe"),
        help="'serve' waits for the driver and the network driver, loads nvidia-peermem, and stays; "
        "'probe' ends with 1 where the network driver is loaded and nvidia-peermem is not",
    )


def run(args: argparse.Namespace, host: Host) -> int:
    if args.action == "probe":
        if reason := peermem_sidecar.problem(host):
            print(f"not ready: {reason}", file=sys.stderr)
        return 1 if reason else 0
    peermem_sidecar.serve(host, mofed_on_host=variables.parse(host.environ).mofed_on_host)
    return 0
