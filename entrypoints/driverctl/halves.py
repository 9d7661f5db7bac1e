"""The table of `driverctl`: which command is in which half, and which image has that."""

from __future__ import annotations

DRIVER, TOOLKIT = "driverforge_driver", "driverforge_toolkit"
# half -> (what it cannot do without, the image that has it)
HALVES: dict[str, tuple[tuple[str, ...], str]] = {
    DRIVER: ((DRIVER,), "the driver's image (driver)"),
    TOOLKIT: ((TOOLKIT, "tomllib", "tomlrt", "h2", "yaml"), "the toolkit's image (container-toolkit)"),
}
# name -> (the package of its half, one-line help)
SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "init": (DRIVER, "load the driver on this node, publish its root, and stay until stopped"),
    "build": (DRIVER, "compile the kernel modules of this image's driver for a kernel release"),
    "load": (DRIVER, "load the driver's kernel modules, then exit"),
    "unload": (DRIVER, "unload the driver's kernel modules and unmount its root, then exit"),
    "status": (DRIVER, "show what is loaded, mounted and ready on this node"),
    "probe": (DRIVER, "startup probe: exit 0 when the driver is ready"),
    "peermem": (DRIVER, "load nvidia-peermem once the network driver is there, and stay: a sidecar"),
    "cdi": (TOOLKIT, "write, list and check the CDI specs by which containers get GPUs"),
    "devices": (TOOLKIT, "make the driver's device files, and the links to them in /dev/char"),
    "doctor": (
        TOOLKIT,
        "look for known problems of the runtime, CDI specs and the toolkit, and say what cures them",
    ),
    "runtime": (TOOLKIT, "configure the node's container runtime for NVIDIA, or revert that"),
    "toolkit": (
        TOOLKIT,
        "install NVIDIA's container toolkit on the node, configure it, and stay until stopped",
    ),
    "validate": (TOOLKIT, "look whether one part of the GPU stack works, or serve the node's metrics"),
    "manager": (DRIVER, "before a driver's container: may this node's driver be replaced?"),
}
