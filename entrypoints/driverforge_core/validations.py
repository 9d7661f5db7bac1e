"""The files by which containers of a node tell each other that a part works.

They are NVIDIA's (gpu-operator v26.7): its pods wait for them, and its programs write the same.
"""

from __future__ import annotations

from enum import Enum

FOLDER = "/run/nvidia/validations"

DRIVER_CONTAINER = ".driver-ctr-ready"
"""Written by the driver pod's startup probe, with a line `KEY: VALUE` for each part beside the driver."""

CC_MANAGER = ".cc-manager-ctr-ready"
"""Written by the confidential computing manager's container."""

WORKLOAD_TYPE = "workload-type"
"""What the GPUs of the node are for: container, vm-passthrough, vm-vgpu."""


class Component(Enum):
    """What a run of `nvidia-validator` looks at, by COMPONENT's value."""

    DRIVER = "driver"
    NVIDIA_FS = "nvidia-fs"
    GDRCOPY = "gdrcopy"
    PEERMEM = "nvidia-peermem"
    MOFED = "mofed"
    TOOLKIT = "toolkit"
    CUDA = "cuda"
    PLUGIN = "plugin"
    VFIO_PCI = "vfio-pci"
    VGPU_MANAGER = "vgpu-manager"
    VGPU_DEVICES = "vgpu-devices"
    CC_MANAGER = "cc-manager"
    METRICS = "metrics"

    @property
    def ready_file(self) -> str:
        """The name of the file that says that this part works."""
        return f"{self.value}-ready"


HOST_VGPU_MANAGER = "host-vgpu-manager-ready"
"""In place of vgpu-manager-ready where the node brought its own."""

WRITTEN = (
    *(component.ready_file for component in Component if component is not Component.METRICS),
    HOST_VGPU_MANAGER,
    WORKLOAD_TYPE,
)
"""Every file that a validator writes."""
