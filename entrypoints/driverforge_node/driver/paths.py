"""Paths of the contract with NVIDIA's operator, of the image, and of our own state.

Sources: NVIDIA/gpu-driver-container's `nvidia-driver` and NVIDIA/gpu-operator's driver DaemonSet.
"""

from __future__ import annotations

# shared with the operator, the toolkit and the validators
RUN = "/run/nvidia"
LOCK = f"{RUN}/nvidia-driver.pid"
DIGEST = f"{RUN}/nvidia-driver.state"
ROOT = f"{RUN}/driver"
VALIDATIONS = f"{RUN}/validations"
DAEMONS_STATUS = f"{VALIDATIONS}/.driver-daemons-status"
FIRMWARE_SEARCH = "/sys/module/firmware_class/parameters/path"
FIRMWARE_SEARCH_VALUE = f"{ROOT}/lib/firmware"
PARAMETER_FILES = "/drivers"

# ours; only what a reboot invalidates
STATE = f"{RUN}/driverforge"
STATUS = f"{STATE}/status.json"
JOURNAL = f"{STATE}/journal.json"
DAEMONS = f"{STATE}/daemons.json"

# on the node; what outlives a reboot
CACHE = "/var/lib/driverforge/modules"

# in the image
IMAGE = "/opt/driverforge/image.json"
MODULE_SETS = "/opt/lib/modules"
MODULE_SET = "module-set.json"

# in the container's own root
STAGE = "/opt/driverforge/stage"  # a private place to prepare the driver's root
MODULES = "/lib/modules"
FIRMWARE = "/lib/firmware/nvidia"
MODPROBE_D = "/etc/modprobe.d"
STAMP = "driverforge.json"
SEPARATE_TREE = (
    f"{STATE}/tree"  # where the container's /lib/modules is the node's: that one is not ours to change
)

# explicit mounts of a node's modules, best first; else <node>/lib/modules
NODE_MODULES = ("/run/host/lib/modules", "/host/lib/modules")
