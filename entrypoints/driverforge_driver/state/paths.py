"""Paths of the contract with NVIDIA's operator, of the image, and of our own state.

The contract's source is `nvidia-driver` of NVIDIA/gpu-driver-container and the driver DaemonSet of
NVIDIA/gpu-operator.
"""

from __future__ import annotations

from driverforge_core import validations

# the contract: shared with the operator, the toolkit and the validators
RUN = "/run/nvidia"
LOCK = f"{RUN}/nvidia-driver.pid"
DIGEST = f"{RUN}/nvidia-driver.state"
ROOT = f"{RUN}/driver"
DAEMONS_STATUS = f"{validations.FOLDER}/.driver-daemons-status"
FIRMWARE_SEARCH = "/sys/module/firmware_class/parameters/path"
FIRMWARE_SEARCH_VALUE = f"{ROOT}/lib/firmware"
# the operator's kernelModuleConfig is mounted here
PARAMETER_FILES = "/drivers"

# ours: only what a reboot invalidates
STATE = f"{RUN}/driverforge"
STATUS = f"{STATE}/status.json"
JOURNAL = f"{STATE}/journal.json"
DAEMONS = f"{STATE}/daemons.json"

# ours, on the node: what outlives a reboot
CACHE = "/var/lib/driverforge/modules"
# answers of conftest.sh and compiled objects
COMPILE_CACHE = "/var/lib/driverforge/compile"
# what the modules of an entry were compiled from and with
BUILT_WITH = "built-with.json"

# in the image
IMAGE = "/opt/driverforge/image.json"
MODULE_SETS = "/opt/lib/modules"
MODULE_SET = "module-set.json"

# in the container's own root
# a folder with private mount propagation, in which the driver's root is prepared
STAGE = "/opt/driverforge/stage"
MODULES = "/lib/modules"
FIRMWARE = "/lib/firmware/nvidia"
MODPROBE_D = "/etc/modprobe.d"
STAMP = "driverforge.json"
# the load tree where the container's /lib/modules is the node's, which is not ours to change
SEPARATE_TREE = f"{STATE}/tree"

# explicit mounts of a node's modules, in the order to look; without one, <node's root>/lib/modules counts
NODE_MODULES = ("/run/host/lib/modules", "/host/lib/modules")
