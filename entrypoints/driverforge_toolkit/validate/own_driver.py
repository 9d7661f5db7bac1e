"""A node that was left to its own driver, and has it no more.

Whoever sees a node's own driver labels the node `pre-installed`, which keeps driver pods away. NVIDIA's
operator leaves it at that for ever.
"""

from __future__ import annotations

from driverforge_core import log
from driverforge_core.errors import DriverforgeError, TemporaryFailure
from driverforge_core.nodekeys import DRIVER_SWITCH, PRE_INSTALLED
from driverforge_host.gpu.smi import nvidia_smi_of
from driverforge_host.ports import NODES
from driverforge_host.probe import REFCOUNT
from driverforge_toolkit.validate.context import Context


def take_back(context: Context) -> bool:
    """Take that label off this node if nothing is left of its own driver; False asks for another try.

    The operator then switches the driver on again. A driver that is loaded, or is there and does not work, is
    somebody's to look at: the label stays.
    """
    host, name = context.host, context.settings.node_name
    if not name or nvidia_smi_of(host.files, host.node.root) or host.files.exists(REFCOUNT):
        return True
    try:
        labels = context.node()["metadata"].get("labels") or {}
        if labels.get(DRIVER_SWITCH) == PRE_INSTALLED:
            context.cluster().patch(f"{NODES}/{name}", {"metadata": {"labels": {DRIVER_SWITCH: None}}})
            log.info(
                "the node's own driver is gone", label=f"{DRIVER_SWITCH}-", seen="no nvidia-smi, no module"
            )
    except DriverforgeError as error:
        log.warning("nobody can say whether this node was left to its own driver", error=error.brief)
        # a missing right stays missing
        return not isinstance(error, TemporaryFailure)
    return True
