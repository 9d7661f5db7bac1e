"""driverctl devices nodes|links: the driver's device files, and the links in /dev/char that container runtimes go by."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from driverforge_node.cdi.roots import View
    from driverforge_node.devices.nodes import Node
    from driverforge_node.host.ports import Host

MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("nodes", "links"),
        help="'nodes' makes nvidiactl, nvidia-modeset and nvidia-uvm*; 'links' the links of /dev/char to device files")  # fmt: skip
    parser.add_argument(
        "--plan",
        "--dry-run",
        action="store_true",
        help="print what would be made or corrected, and do nothing",
    )
    parser.add_argument("--driver-root", metavar="DIR",
        help="folder of the node with the driver's files; default: NVIDIA_DRIVER_ROOT, else /")  # fmt: skip
    parser.add_argument("--dev-root", metavar="DIR",
        help="folder of the node that has dev/; default: NVIDIA_DEV_ROOT, else the driver root")  # fmt: skip
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
    parser.add_argument("--create-all", action="store_true",
        help="links: also to device files that are not there yet (control, GPUs, MIG capabilities)")  # fmt: skip
    parser.add_argument(
        "--load-kernel-modules",
        action="store_true",
        help="load the driver's modules first, from the driver root",
    )


def run(args: argparse.Namespace, host: Host) -> int:
    seen = view_of(args, host)
    if args.load_kernel_modules and not args.plan:
        for name in MODULES:
            host.modules.insert(name, base=seen.roots.driver_seen)
    lines = make_nodes(args, seen) if args.action == "nodes" else make_links(args, host, seen)
    print("\n".join(lines) or "nothing to do")
    return 0


def view_of(args: argparse.Namespace, host: Host) -> View:
    """Options first, then the variables of NVIDIA's pods. A pod has a /dev of its own: the node's is meant."""
    from driverforge_node.cdi.roots import Roots, View, driver_root_of
    from driverforge_node.runtime.environment import first

    driver = args.driver_root or driver_root_of(host.environ, "NVIDIA_DRIVER_ROOT", "DRIVER_ROOT")
    dev = args.dev_root or first(host.environ, ("NVIDIA_DEV_ROOT", "DEV_ROOT"))[1] or driver
    here = "" if args.driver_root else host.environ.get("DRIVER_ROOT_CTR_PATH", "")
    roots = Roots(driver=driver, driver_here=here, dev=dev, dev_here=dev)
    return View(
        roots=roots, system=host.files, driver=host.files.under(roots.driver_seen), dev=host.node.under(dev)
    )


def make_nodes(args: argparse.Namespace, seen: View) -> list[str]:
    from driverforge_node.devices import nodes

    majors = _majors(seen)
    if "nvidia-uvm" not in majors:
        from driverforge_node import log

        log.warning("the module nvidia_uvm is not loaded; its device files are left out")
    wanted = nodes.control_nodes(majors) + (nodes.gpu_nodes(majors, _gpu_minors(seen)) if args.gpus else ())
    makings = nodes.plan(seen.dev, wanted)
    if not args.plan:
        nodes.make(seen.dev, makings)
    return [making.describe() for making in makings]


def make_links(args: argparse.Namespace, host: Host, seen: View) -> list[str]:
    from driverforge_node.devices import links

    linkings = links.plan(
        host.node, args.dev_char_path, _linked_nodes(args, seen), dev_root=seen.roots.dev_host
    )
    if not args.plan:
        links.make(host.node, linkings)
    return [linking.describe() for linking in linkings]


def _linked_nodes(args: argparse.Namespace, seen: View) -> list[Node]:
    """What is in the dev root, and with --create-all what is to come."""
    from driverforge_node.cdi.nodes import char_devices
    from driverforge_node.devices import links, nodes

    numbers = [(path, seen.dev.device_number(path)) for path in char_devices(seen, links.PATTERNS)]
    there = [nodes.Node(path=path, major=found[0], minor=found[1]) for path, found in numbers if found]
    if not args.create_all:
        return there
    from driverforge_node.cdi.gpus import MIG_MINORS, parse_mig_minors
    from driverforge_node.cdi.roots import read

    majors = _majors(seen)
    capabilities = parse_mig_minors(read(seen.system, MIG_MINORS)).values()
    coming = (
        *nodes.control_nodes(majors),
        *nodes.gpu_nodes(majors, _gpu_minors(seen)),
        *nodes.capability_nodes(majors, capabilities),
    )
    return [*there, *(node for node in coming if node.path not in {known.path for known in there})]


def _majors(seen: View) -> dict[str, int]:
    from driverforge_node.cdi.roots import read
    from driverforge_node.driver.observe import device_majors

    return device_majors(read(seen.system, "/proc/devices"))


def _gpu_minors(seen: View) -> list[int]:
    from driverforge_node.cdi.gpus import static_gpus

    return [gpu.minor for gpu in static_gpus(seen)]
