"""driverctl manager: `driver-manager` of NVIDIA's operator, the first container of a driver's pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driverforge_core import log
from driverforge_driver.app.driver_removal import Removal, may_install
from driverforge_kube.address import find
from driverforge_kube.apiserver import KubernetesClient

if TYPE_CHECKING:
    import argparse

    from driverforge_host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("uninstall_driver", "preflight_check"),
        help="'uninstall_driver' ends with 0 where no driver is loaded, or the wanted one "
        "(DRIVER_CONFIG_DIGEST), and else says who uses it; 'preflight_check' does nothing, as upstream's",
    )
    parser.add_argument("--node-name", metavar="NAME", default="", help="[$NODE_NAME]")
    parser.add_argument("--kubeconfig", metavar="FILE", default="", help="as JSON [$KUBECONFIG]")
    parser.add_argument(
        "--force-reinstall", action="store_true", help="also the wanted driver is to go [$FORCE_REINSTALL]"
    )


def run(args: argparse.Namespace, host: Host) -> int:
    if args.action == "preflight_check":
        return 0
    environ = host.environ
    removal = Removal(
        node_name=args.node_name or environ.get("NODE_NAME", ""),
        digest=environ.get("DRIVER_CONFIG_DIGEST", ""),
        force=args.force_reinstall or environ.get("FORCE_REINSTALL", "").lower() == "true",
    )
    kubeconfig = args.kubeconfig or environ.get("KUBECONFIG", "")
    why = may_install(host, lambda: KubernetesClient(find(environ, kubeconfig)), removal)
    log.info("the driver's container may start", why=why)
    return 0
