"""From the words of modprobe and the kernel to an error that says what to do. Pure.

The words are kmod's (libkmod prints strerror(3)), the kernel's (kernel/module/*.c) and the driver's own (its
NVRM lines). Several may be there at once: the kernel's log says why, modprobe's errno is the same for many
causes. So the order of the tests in `explain_insert` matters, from the particular to the general.
"""

from __future__ import annotations

from driverforge_core.errors import (
    CommandFailed,
    DriverforgeError,
    NotPermitted,
    StorageFailed,
    TemporaryFailure,
    Unavailable,
    Unsupported,
)

OTHER_KERNEL = (
    "disagrees about version of symbol",
    "version magic",
    "Invalid module format",
    "Exec format error",
)
UNKNOWN_SYMBOL = "Unknown symbol"


def misfits(error: CommandFailed) -> bool:
    """Whether the kernel refused the module itself: another compilation may give one that it takes."""
    text = "\n".join(error.details)
    return any(word in text for word in (*OTHER_KERNEL, UNKNOWN_SYMBOL))


def explain_insert(error: CommandFailed, *, release: str) -> DriverforgeError:
    """The error for a module that could not be inserted, with a heading and a next step that fit.

    `release` is the running kernel. Returns `error` itself where its words are not known.
    """
    text = "\n".join(error.details)

    def says(*words: str) -> bool:
        return any(word in text for word in words)

    brief = error.brief
    if says("Key was rejected by service", "Lockdown:", "Loading of unsigned module is rejected"):
        return NotPermitted(
            f"{brief}: the kernel does not accept its signature",
            details=error.details,
            resolution="sign the modules with a key that the node trusts "
            "(mokutil --list-enrolled; mokutil --import KEY.der), "
            "or boot without module.sig_enforce and Secure Boot",
        )
    if says(*OTHER_KERNEL):
        return Unsupported(
            f"{brief}: it was built for another kernel than {release}",
            details=error.details,
            resolution=f"build modules for exactly {release}: driverctl build --kernel {release}, "
            "or use the image for this kernel",
        )
    if says("The NVIDIA probe routine was not called"):
        return Unsupported(
            f"{brief}: the GPU belongs to another driver",
            details=error.details,
            resolution="find it with `lspci -k -d 10de:`, keep it from loading, then start again",
        )
    if says("No NVIDIA GPU found", "No such device"):
        return Unavailable(
            f"{brief}: the driver found no NVIDIA GPU that it supports",
            details=error.details,
            resolution="check `lspci -d 10de:` "
            "and whether this driver branch and module type support the GPU (KERNEL_MODULE_TYPE)",
        )
    if says("module compiled without IB peer memory symbols"):
        return Unsupported(
            f"{brief}: it was compiled without the peer memory functions of a network driver",
            details=error.details,
            resolution="install MOFED (or DOCA) first, with USE_HOST_MOFED=true where it is on the host, "
            "and use an image that compiles on the node (tag <driver>-<os>); "
            "or let applications use DMA-BUF, which needs no nvidia-peermem",
        )
    if says(UNKNOWN_SYMBOL):
        return Unsupported(
            f"{brief}: the kernel lacks symbols that it needs",
            details=error.details,
            resolution=f"build modules against the headers of exactly {release}",
        )
    if says("No space left on device"):
        return StorageFailed(
            f"{brief}: no space left",
            details=error.details,
            resolution="free space (df -h), then start again",
        )
    if says("Cannot allocate memory"):
        return TemporaryFailure(
            f"{brief}: out of memory",
            details=error.details,
            resolution="free memory on the node, then start again",
        )
    if says("Operation not permitted"):
        return NotPermitted(
            f"{brief}: not permitted",
            details=error.details,
            resolution="run privileged: CAP_SYS_MODULE is needed",
        )
    return error


def not_loaded_warning(name: str, error: DriverforgeError) -> str:
    """The warning for a module that could not be loaded and that the driver is whole without."""
    words = "; ".join(line for line in error.details if not line.startswith("$"))
    return f"{name} is not loaded: {error.brief} ({words}); next: {error.resolution}"
