"""Labels and annotations of nodes by which operator, driver manager and validator talk to each other.

The first are NVIDIA's: its operator and programs read and write the same. Then come those of Node Feature
Discovery, and ours.
"""

from __future__ import annotations

GPU_PRESENT = "nvidia.com/gpu.present"
WORKLOAD = "nvidia.com/gpu.workload.config"
VM_PASSTHROUGH, VM_VGPU = "vm-passthrough", "vm-vgpu"
WORKLOADS = ("container", VM_PASSTHROUGH, VM_VGPU)
"""What it may say."""
OPERANDS = "nvidia.com/gpu.deploy.operands"
DRIVER_OWNER = "nvidia.com/gpu-operator.driver.owner"
MIG_CAPABLE = "nvidia.com/mig.capable"
MIG_CONFIG = "nvidia.com/mig.config"
GPU_PRODUCT = "nvidia.com/gpu.product"
VGPU_HOST_DRIVER = "nvidia.com/vgpu.host-driver-version"
UPGRADE_ENABLED = "nvidia.com/gpu-driver-upgrade-enabled"
UPGRADE_STATE, UPGRADE_DONE = "nvidia.com/gpu-driver-upgrade-state", "upgrade-done"
"""Where NVIDIA's operator is with an upgrade of a node's driver, and its last word; ours writes none."""

DEPLOY = "nvidia.com/gpu.deploy."
"""Before a component's name: the switch of that component on one node."""

DRIVER_SWITCH = f"{DEPLOY}driver"
PRE_INSTALLED = "pre-installed"
"""The value of that switch where the node has a driver of its own."""

# what Node Feature Discovery finds, and kubelets
FEATURE = "feature.node.kubernetes.io/"
GPU_FEATURES = tuple(f"{FEATURE}pci-{device}.present" for device in ("10de", "0302_10de", "0300_10de"))
KERNEL = f"{FEATURE}kernel-version.full"
OS_ID = f"{FEATURE}system-os_release.ID"
OS_VERSION = f"{FEATURE}system-os_release.VERSION_ID"
OS_MAJOR = f"{FEATURE}system-os_release.VERSION_ID.major"
OSTREE_VERSION = f"{FEATURE}system-os_release.OSTREE_VERSION"
ARCH = "kubernetes.io/arch"

JIT_VERSION = "driverforge.io/jit-version"
"""On a custom resource: the driver that nodes compile whose precompiled image is missing."""

NOT_READY = "driverforge.io/not-ready"
"""A taint: the GPUs of a node were not validated since its boot."""

READY_TAINT = "driverforge.io/ready-taint"
"""On a ClusterPolicy, 'true': its nodes have that taint until they are validated."""

VALIDATED = "driverforge.io/validated"
"""On a node: the boot in which it was validated, and since when the validator's pod was ready then."""

CONTENTS = "driverforge.io/contents"
"""On an operand's pods: the number of what their ConfigMaps and Secrets hold."""

RUNTIME = "driverforge.io/container-runtime"
"""The container runtime of a node with GPUs, where it is not containerd."""
