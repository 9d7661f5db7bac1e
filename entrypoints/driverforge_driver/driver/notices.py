"""What a node lacks although it is ready, and what was asked for in vain. Pure."""

from __future__ import annotations

from driverforge_core.names import PEERMEM
from driverforge_driver.driver.plan import disables_firmware
from driverforge_driver.driver.preflight import OURS
from driverforge_driver.state import paths
from driverforge_driver.state.facts import DriverFacts, WantedDriver


def warnings(facts: DriverFacts, wanted: WantedDriver, *, nvlink5: bool) -> tuple[str, ...]:
    """What a ready node lacks: for log and status file, a line each, with the next step.

    `nvlink5` says that a network device of the node manages NVLink 5 switches.
    """
    if not wanted.goal.loads:
        return ()
    return (
        *_not_driven(facts),
        *_firmware_path(facts, wanted),
        *_nvswitches(facts),
        *_nvlink5(nvlink5),
        *_peermem(facts, wanted),
    )


def left_out(facts: DriverFacts, wanted: WantedDriver) -> str:
    """What was asked for and has nothing to do on this node; '' where there is no such thing."""
    asked = wanted.goal.loads and wanted.peermem and not facts.network.devices
    return "nvidia-peermem is left out: no network device of PCI vendor 15b3 on this node" if asked else ""


def _not_driven(facts: DriverFacts) -> tuple[str, ...]:
    """GPUs that are free, or bound to nvidia, and that the loaded driver did not take."""
    found = [gpu.address for gpu in facts.gpus if gpu.driver in OURS and gpu.address not in facts.driven]
    if not found or not facts.driven:
        return ()
    there = f"the driver drives {len(facts.driven)} of {len(facts.driven) + len(found)} GPUs"
    return (f"{there}, not {', '.join(found)}; next: look for NVRM in the node's dmesg",)


def _firmware_path(facts: DriverFacts, wanted: WantedDriver) -> tuple[str, ...]:
    taken = facts.firmware_path not in (None, "", paths.FIRMWARE_SEARCH_VALUE)
    if not taken or not facts.image or not facts.image.firmware or disables_firmware(wanted):
        return ()
    there = (
        f"the kernel searches for firmware in {facts.firmware_path}, which somebody else set, "
        f"not in {paths.FIRMWARE_SEARCH_VALUE}: GPUs that need GSP firmware do not start"
    )
    step = f"copy nvidia/{wanted.driver} there, or empty {paths.FIRMWARE_SEARCH} and start again"
    return (f"{there}; next: {step}",)


def _nvlink5(managed: bool) -> tuple[str, ...]:
    if not managed:
        return ()
    there = (
        "this node has NVLink 5 switches and this image runs no subnet manager for them (nvlsm): "
        "without one, GPUs do not reach each other by NVLink"
    )
    return (f"{there}; next: run nvlsm and nvidia-fabricmanager on the node, unless they do already",)


def _nvswitches(facts: DriverFacts) -> tuple[str, ...]:
    if not facts.nvswitches:
        return ()
    version = facts.loaded["nvidia"].version if "nvidia" in facts.loaded else "the driver's version"
    there = (
        f"this node has {len(facts.nvswitches)} NVSwitches ({', '.join(facts.nvswitches)}) "
        "and this image runs no fabric manager"
    )
    effect = "without one, CUDA programs end with error 802 (system not yet initialized)"
    return (
        f"{there}: {effect}; next: run nvidia-fabricmanager {version} on the node, unless it does already",
    )


def _peermem(facts: DriverFacts, wanted: WantedDriver) -> tuple[str, ...]:
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
