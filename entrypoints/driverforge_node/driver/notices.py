"""What is not as somebody may expect on a node that is Ready nevertheless. Pure."""

from __future__ import annotations

from driverforge_core.errors import DriverforgeError
from driverforge_core.names import PEERMEM
from driverforge_node.driver.facts import Facts, Wanted


def warnings(facts: Facts, wanted: Wanted) -> tuple[str, ...]:
    """For log and status file, a line each, with the next step."""
    return (*_nvswitches(facts), *_peermem(facts, wanted)) if wanted.goal in ("serve", "load") else ()


def _nvswitches(facts: Facts) -> tuple[str, ...]:
    if not facts.nvswitches:
        return ()
    version = facts.loaded["nvidia"].version if "nvidia" in facts.loaded else "the driver's version"
    there = f"this node has {len(facts.nvswitches)} NVSwitches ({', '.join(facts.nvswitches)}) and this image runs no fabric manager"
    effect = "without one, CUDA programs end with error 802 (system not yet initialized)"
    return (
        f"{there}: {effect}; next: run nvidia-fabricmanager {version} on the node, unless it does already",
    )


def _peermem(facts: Facts, wanted: Wanted) -> tuple[str, ...]:
    if not wanted.peermem or PEERMEM in facts.loaded or not facts.network.devices:
        return ()
    if not facts.network.ready:
        reason, step = (
            "the kernel has no InfiniBand yet (no /sys/class/infiniband)",
            "load the network driver (mlx5_ib), then start again",
        )
    else:
        reason, step = (
            f"the module set of driver {wanted.driver} has none",
            "use an image that was built with it",
        )
    return (f"nvidia-peermem is not loaded: {reason}; next: {step}",)


def refused(name: str, error: DriverforgeError) -> str:
    """For a module that the driver is whole without."""
    words = "; ".join(line for line in error.details if not line.startswith("$"))
    return f"{name} is not loaded: {error.brief} ({words}); next: {error.resolution}"


def left_out(facts: Facts, wanted: Wanted) -> str:
    """What was asked for and has nothing to do on this node; '' when nothing."""
    asked = wanted.goal in ("serve", "load") and wanted.peermem and not facts.network.devices
    return "nvidia-peermem is left out: no network device of PCI vendor 15b3 on this node" if asked else ""
