"""The life of the sidecar that NVIDIA's operator runs from the driver's image where GPUDirect RDMA is on.

`init` loads nvidia-peermem itself where the network driver is there by then. Where that one comes later, as
from a container of its own, the sidecar waits for it and loads the module.
"""

from __future__ import annotations

from driverforge_core import log
from driverforge_core.errors import CommandFailed
from driverforge_core.names import PEERMEM
from driverforge_driver.driver.steps.diagnose import explain_insert
from driverforge_driver.state import paths
from driverforge_driver.state.loadtree import tree_folder
from driverforge_driver.state.network import INFINIBAND
from driverforge_host import probe
from driverforge_host.ports import Host, bytes_of, text_of

# written by the network driver's container (NVIDIA/network-operator)
NETWORK_READY = "/run/mellanox/drivers/.driver-ready"
# the network driver's own module, which both probes of upstream's look for
NETWORK_MODULE = "mlx5_core"
POLL = 10.0  # seconds


def serve(host: Host, *, mofed_on_host: bool) -> None:
    """Wait for driver and network driver, load nvidia-peermem, and stay until a stop signal.

    Raises what keeps the module out: the kubelet starts the sidecar again, and shows it.
    """
    said = ""
    while reason := waits_for(host, mofed_on_host=mofed_on_host):
        if reason != said:
            log.info("waiting", reason=reason)
            said = reason
        if signal := host.clock.wait(POLL):
            log.info("stopping", signal=signal)
            return
    if PEERMEM not in host.modules.loaded():
        _insert(host)
    log.info("nvidia-peermem is loaded")
    while (signal := host.clock.wait(POLL)) is None:
        pass
    log.info("stopping", signal=signal)


def waits_for(host: Host, *, mofed_on_host: bool) -> str:
    """What nvidia-peermem has to wait for; '' where it is loaded or can be.

    Before InfiniBand, modprobe would load the kernel's own ib_core for it, which keeps MOFED's out.
    """
    if PEERMEM in host.modules.loaded():
        return ""
    if reason := probe.reason_not_ready(lambda path: _text_or_none(host, path)):
        return f"the driver is not ready: {reason}"
    if mofed_on_host and NETWORK_MODULE not in host.modules.loaded():
        return f"the host has not loaded its network driver: no module {NETWORK_MODULE}"
    if not mofed_on_host and not host.files.exists(NETWORK_READY):
        return f"the network driver's container is not ready: no {NETWORK_READY}"
    return "" if host.files.exists(INFINIBAND) else f"the kernel has no InfiniBand: no {INFINIBAND}"


def problem(host: Host) -> str:
    """What is wrong where the network driver is loaded and nvidia-peermem is not; '' elsewhere."""
    loaded = host.modules.loaded()
    missing = NETWORK_MODULE in loaded and PEERMEM not in loaded
    return f"{NETWORK_MODULE} is loaded, and {PEERMEM} is not" if missing else ""


def _insert(host: Host) -> None:
    """Load the module from the load tree that the driver's container filled, with its parameters."""
    release = host.modules.release()
    separate = host.files.exists(tree_folder(paths.SEPARATE_TREE, release))
    options = text_of(host.files, f"{paths.ROOT}{paths.MODPROBE_D}/nvidia-peermem.conf").split()
    try:
        host.modules.insert(
            PEERMEM, base=paths.SEPARATE_TREE if separate else paths.ROOT, parameters=options[2:]
        )
    except CommandFailed as error:
        raise explain_insert(error, release=release) from error


def _text_or_none(host: Host, path: str) -> str | None:
    data = bytes_of(host.files, path)
    return None if data is None else data.decode(errors="replace")
