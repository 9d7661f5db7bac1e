"""`driver-manager uninstall_driver`: may the driver's container that follows touch this node's driver?

It takes nothing off the node. A driver that is in use, and is not the one that is wanted, is refused with the
way to go on; our own driver's container unloads its driver when it stops, if nobody uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from driverforge_core import log
from driverforge_core.errors import InUse
from driverforge_core.nodekeys import DRIVER_SWITCH, PRE_INSTALLED
from driverforge_driver.state import paths
from driverforge_host.gpu.detect import loaded_version
from driverforge_host.gpu.device_files import PROC_DEVICES, device_majors
from driverforge_host.gpu.smi import host_driver
from driverforge_host.ports import NODES, Cluster, Host, text_of
from driverforge_host.probe import REFCOUNT


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What is asked for: the wanted driver's digest, and on which node."""

    node_name: str
    digest: str
    force: bool  # also a driver with this digest is to go


def may_install(host: Host, cluster: Callable[[], Cluster], removal: Removal) -> str:
    """Why the driver's container may start. Raises InUse where it may not."""
    if not host.files.exists(REFCOUNT):
        return "no driver is loaded"
    stored = text_of(host.files, paths.DIGEST).strip()
    if not stored and (seen := host_driver(host)):
        _leave_to_host(cluster, removal, seen)
    if stored and stored == removal.digest and not removal.force:
        return f"the loaded driver is the wanted one (digest {stored})"
    raise InUse(
        f"another driver is wanted than the loaded one ({loaded_version(host.files) or 'unknown version'})",
        details=[
            f"{paths.DIGEST}: {stored or 'missing'}; wanted: {removal.digest or 'not said'}",
            *(["FORCE_REINSTALL is true"] if removal.force else []),
            *_holders(host),
        ],
        # the pod that could have unloaded it has stopped already; it unloads what nobody uses
        resolution=f"kubectl drain {removal.node_name or 'NODE'} --ignore-daemonsets, then reboot it: the "
        "driver stayed because something used it when its pod stopped",
    )


def _leave_to_host(cluster: Callable[[], Cluster], removal: Removal, seen: str) -> None:
    """Switch our driver off for this node, which takes this very pod away. Raises InUse."""
    if removal.node_name:
        change = {"metadata": {"labels": {DRIVER_SWITCH: PRE_INSTALLED}}}
        cluster().patch(f"{NODES}/{removal.node_name}", change)
        log.info("left to the node's own driver", label=f"{DRIVER_SWITCH}={PRE_INSTALLED}", seen=seen)
    raise InUse(
        "the node has a driver of its own",
        details=[f"its nvidia-smi says: {seen}"],
        resolution=f"nothing: the node's label {DRIVER_SWITCH} is {PRE_INSTALLED} now, and the driver's pod "
        "goes. To have a container bring the driver, uninstall the node's own and reboot: our validator "
        "takes the label off (with another one, remove it yourself)",
    )


def _holders(host: Host) -> list[str]:
    majors = device_majors(text_of(host.files, PROC_DEVICES)).values()
    return [
        f"in use by {holder.command} (process {holder.pid}"
        f"{f', pod {holder.pod}' if holder.pod else ''}): {holder.path}"
        for holder in host.processes.holders(tuple(majors))
    ]
