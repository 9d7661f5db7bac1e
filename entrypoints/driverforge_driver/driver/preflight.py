"""What must hold before anything is touched. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from driverforge_core.errors import DriverforgeError, NotPermitted, StorageFailed, Unavailable, Unsupported
from driverforge_driver.state.facts import DriverFacts, WantedDriver
from driverforge_driver.state.module_sets import ModuleSource

# bytes beside the modules themselves: indexes, in-tree modules, status files
RESERVE = 16 << 20
# drivers that a GPU may be bound to: none, or this one
OURS = ("", "nvidia")


def preflight(facts: DriverFacts, wanted: WantedDriver) -> DriverforgeError | None:
    """The first reason not to start, whatever has to be done; None where there is none.

    Whether there are modules is judged later, in `choice`, and whether they fit on the disk once it is known
    that they have to be written.
    """
    if facts.user != 0:
        return not_root_error(facts.user)
    if facts.image is None:
        return Unsupported(
            "this is not a driver image: it has no description",
            details=["/opt/driverforge/image.json is missing"],
            resolution="run driverctl from an image that `driverforge build` made",
        )
    if wanted.driver != facts.image.driver.text:
        return Unsupported(
            f"DRIVER_VERSION={wanted.driver}, but the image holds driver {facts.image.driver}",
            resolution="leave DRIVER_VERSION as the image sets it, or use the image of that version",
        )
    if wanted.kernel not in ("", facts.release):
        return Unsupported(
            f"the kernel {facts.release} runs, and --kernel names {wanted.kernel}",
            resolution="leave --kernel out, or boot that kernel; "
            f"`driverctl build --kernel {wanted.kernel}` compiles modules for it ahead",
        )
    if not facts.modular:
        return Unsupported(
            f"the kernel {facts.release} loads no modules",
            details=["/proc/modules is missing: CONFIG_MODULES is off"],
            resolution="boot a distribution's kernel",
        )
    return gpu_problem(facts)


def not_root_error(user: int) -> NotPermitted:
    """The error for another effective user id than 0."""
    return NotPermitted(
        "loading a driver needs root",
        details=[f"effective user id {user}"],
        resolution="run as root in a privileged container (securityContext.privileged: true), or with sudo",
    )


def gpu_problem(facts: DriverFacts) -> DriverforgeError | None:
    """Why there is no GPU to drive; None where at least one is free or ours."""
    if not facts.gpus:
        return Unavailable(
            "no NVIDIA GPU on this node",
            details=["no PCI device of vendor 10de with class 0300 or 0302 in /sys/bus/pci/devices"],
            resolution="schedule the driver on nodes with a GPU "
            "(node label feature.node.kubernetes.io/pci-10de.present=true), or check `lspci -d 10de:`",
        )
    if any(gpu.driver in OURS for gpu in facts.gpus):
        return None
    owners = sorted({gpu.driver for gpu in facts.gpus})
    return Unsupported(
        f"every NVIDIA GPU on this node belongs to another driver: {', '.join(owners)}",
        details=[
            f"{gpu.address} [{gpu.vendor:04x}:{gpu.device:04x}] is bound to {gpu.driver}"
            for gpu in facts.gpus
        ],
        resolution=owner_resolution(owners),
    )


def owner_resolution(owners: list[str]) -> str:
    if "nouveau" in owners:
        return (
            "keep nouveau from loading "
            "(modprobe.d: blacklist nouveau, options nouveau modeset=0; update the initramfs; reboot)"
        )
    if "vfio-pci" in owners:
        return (
            "this node passes its GPUs to virtual machines: "
            "leave it out of the driver's nodes, or unbind them from vfio-pci"
        )
    return f"unbind the GPU: echo ADDRESS > /sys/bus/pci/drivers/{owners[0]}/unbind"


def signature_problem(facts: DriverFacts, wanted: WantedDriver) -> NotPermitted | None:
    """The error where the kernel takes signed modules only and none of ours can be one; None else.

    It is known before anything is unloaded, and does not matter to a driver that stays loaded. A key that the
    kernel has may still not be one for modules: that only the kernel can tell.
    """
    fitting = [s for s in facts.sources if wanted.module_type.accepts(s.modules.module_type)]
    if not facts.enforced or not fitting:
        return None
    signed = [source for source in fitting if source.signer]
    if not signed:
        return signed_only_error(
            facts,
            "the modules for it are unsigned",
            [f"{source.path}/nvidia.ko has no signature" for source in fitting],
        )
    if all(_lacks_key(facts, source) for source in signed):
        return signed_only_error(
            facts,
            "it does not have the key of the modules for it",
            [f"{source.path} is signed by {source.signer} {source.modules.signer_key}" for source in signed],
        )
    return None


def _lacks_key(facts: DriverFacts, source: ModuleSource) -> bool:
    """Whether the kernel surely lacks it: the set has to say whose it is, and the kernel which it has."""
    key = source.modules.signer_key
    return bool(key and facts.kernel_keys and key not in facts.kernel_keys)


def signed_only_error(facts: DriverFacts, problem: str, evidence: Sequence[str]) -> NotPermitted:
    return NotPermitted(
        f"this kernel takes signed modules only, and {problem}",
        details=[facts.enforced, *evidence],
        resolution="use an image with signed modules whose key the node's firmware or MOK list holds "
        "(mokutil --list-enrolled), or turn Secure Boot off",
    )


def space_problem(facts: DriverFacts, source: ModuleSource) -> StorageFailed | None:
    """The error where the load tree has no room for a module set; None where it has."""
    need = RESERVE + source.size
    if facts.free >= need:
        return None
    return StorageFailed(
        "not enough free space for the kernel modules",
        details=[f"{facts.free >> 20} MiB free under /lib/modules, {need >> 20} MiB needed"],
        resolution="free space on the file system of the container runtime (df -h /var/lib/containerd), "
        "then start again",
    )
