"""driverctl devices nodes|links: the driver's device files, and the links to them in /dev/char."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driverforge_host.gpu.environment import first
from driverforge_host.gpu.roots import DriverRoots, driver_root_of
from driverforge_toolkit.app.device_nodes import DeviceRequest, make_links, make_nodes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from driverforge_host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("nodes", "links"),
        help="'nodes' makes nvidiactl, nvidia-modeset and nvidia-uvm*; "
        "'links' the links of /dev/char to device files",
    )
    parser.add_argument(
        "--plan",
        "--dry-run",
        action="store_true",
        help="print what would be made or corrected, and do nothing",
    )
    parser.add_argument(
        "--driver-root",
        metavar="DIR",
        help="folder of the node with the driver's files; default: NVIDIA_DRIVER_ROOT, else /",
    )
    parser.add_argument(
        "--dev-root",
        metavar="DIR",
        help="folder of the node that has dev/; default: NVIDIA_DEV_ROOT, else the driver root",
    )
    parser.add_argument(
        "--gpus",
        action="store_true",
        help="nodes: also /dev/nvidia0 and so on, for every GPU of the loaded driver",
    )
    parser.add_argument(
        "--dev-char-path",
        metavar="DIR",
        default="/dev/char",
        help="links: where they are; default: %(default)s",
    )
    parser.add_argument(
        "--create-all",
        action="store_true",
        help="links: also to device files that are not there yet (control, GPUs, MIG capabilities)",
    )
    parser.add_argument(
        "--load-kernel-modules",
        action="store_true",
        help="load the driver's modules first, from the driver root",
    )


def run(args: argparse.Namespace, host: Host) -> int:
    roots = roots_of(args, host.environ)
    request = DeviceRequest(roots=roots, plan=args.plan, load_modules=args.load_kernel_modules)
    if args.action == "nodes":
        lines = [repair.describe() for repair in make_nodes(host, request, gpus=args.gpus)]
    else:
        links = make_links(host, request, folder=args.dev_char_path, create_all=args.create_all)
        lines = [repair.describe() for repair in links]
    print("\n".join(lines) or "nothing to do")
    return 0


def roots_of(args: argparse.Namespace, environ: Mapping[str, str]) -> DriverRoots:
    """Options first, then the variables of NVIDIA's pods.

    The dev root is the node's, whatever this process has in /dev.
    """
    driver = args.driver_root or driver_root_of(environ, "NVIDIA_DRIVER_ROOT", "DRIVER_ROOT")
    dev = args.dev_root or first(environ, ("NVIDIA_DEV_ROOT", "DEV_ROOT"))[1] or driver
    here = "" if args.driver_root else environ.get("DRIVER_ROOT_CTR_PATH", "")
    return DriverRoots(driver=driver, driver_here=here, dev=dev, dev_here=dev)
