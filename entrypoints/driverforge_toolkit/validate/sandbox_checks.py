"""Nodes whose GPUs are for virtual machines: vfio-pci, vgpu-manager, vgpu-devices, cc-manager."""

from __future__ import annotations

from driverforge_core.nodekeys import WORKLOAD, WORKLOADS
from driverforge_core.validations import (
    CC_MANAGER,
    DRIVER_CONTAINER,
    HOST_VGPU_MANAGER,
    WORKLOAD_TYPE,
    Component,
)
from driverforge_host.gpu.detect import pci_devices
from driverforge_host.gpu.smi import host_driver
from driverforge_host.ports import JsonObject, text_of
from driverforge_toolkit.validate.context import Context, NotValidated, Validated

CC_CAPABLE = "nvidia.com/cc.capable"
VFIO = "vfio-pci"
VFIO_DRIVERS = (VFIO, "nvgrace_gpu_vfio_pci")
"""The kernel's drivers that hand a GPU on; the second is for Grace's (drivers/vfio/pci/nvgrace-gpu)."""
_, PASSTHROUGH, VGPU = WORKLOADS
MEDIATED = "/sys/bus/mdev/devices"
PCI = "/sys/bus/pci/devices"
VGPU_TYPE = "nvidia/current_vgpu_type"  # of a virtual function; 0 is none


def workload(context: Context) -> str:
    """What the node is for, by its label; the default where the label says nothing that is known."""
    said = _labels(context.node()).get(WORKLOAD, "")
    return said if said in WORKLOADS else context.settings.default_gpu_workload_config


def _labels(node: JsonObject) -> dict[str, str]:
    found: dict[str, str] = node["metadata"].get("labels") or {}
    return found


def _elsewhere(kind: str, wanted: str) -> Validated:
    return Validated(seen=f"the node is for {kind}, not {wanted}", files={WORKLOAD_TYPE: f"{kind}\n"})


def check_vfio(context: Context) -> Validated:
    """Every GPU is bound to vfio-pci."""
    kind = workload(context)
    if kind != PASSTHROUGH:
        return _elsewhere(kind, PASSTHROUGH)
    gpus = [device for device in pci_devices(context.host.files) if device.is_gpu]
    others = [f"{gpu.address}: {gpu.driver or 'no driver'}" for gpu in gpus if gpu.driver not in VFIO_DRIVERS]
    if others or not gpus:
        raise NotValidated(
            "not every GPU is bound to vfio-pci" if gpus else "the node has no GPU",
            details=others or [f"{PCI} has no NVIDIA GPU"],
            resolution="look into the log of the vfio-manager's pod on this node (nvidia-vfio-manager)",
        )
    return Validated(
        seen=f"{len(gpus)} GPUs are bound to {VFIO}",
        files={WORKLOAD_TYPE: f"{kind}\n", Component.VFIO_PCI.ready_file: ""},
    )


def check_vgpu_manager(context: Context) -> Validated:
    """The driver of a vGPU host is there, the node's own or a container's, and so are virtual functions."""
    kind = workload(context)
    if kind != VGPU:
        return _elsewhere(kind, VGPU)
    if seen := host_driver(context.host):
        _check_functions(context)
        return Validated(
            seen=f"the node's own: {seen}", files={WORKLOAD_TYPE: f"{kind}\n", HOST_VGPU_MANAGER: ""}
        )
    module = "nvidia_vgpu_vfio"
    if module not in context.host.modules.loaded():
        there = context.host.files.exists(context.status_file(DRIVER_CONTAINER))
        raise NotValidated(
            "the vGPU manager does not serve",
            details=[
                f"the kernel module {module} is not loaded",
                f"{DRIVER_CONTAINER} is {'there' if there else 'missing'}",
            ],
            resolution="look into the log of the vGPU manager's pod on this node "
            "(nvidia-vgpu-manager-daemonset), and into dmesg",
        )
    _check_functions(context)
    return Validated(
        seen=f"module {module} is loaded",
        files={WORKLOAD_TYPE: f"{kind}\n", Component.VGPU_MANAGER.ready_file: ""},
    )


def _check_functions(context: Context) -> None:
    """Every GPU that can have virtual functions has all of them; older GPUs have none to wait for.

    As NVIDIA's validator waits for them (waitForVFs of cmd/nvidia-validator); by sriov_totalvfs and
    sriov_numvfs of Linux' Documentation/ABI/testing/sysfs-bus-pci.
    """
    files = context.host.files
    wanted: dict[str, tuple[int, int]] = {}
    for gpu in pci_devices(files):
        total, there = (text_of(files, f"{PCI}/{gpu.address}/sriov_{one}vfs") for one in ("total", "num"))
        if gpu.is_gpu and total.strip().isdecimal():
            wanted[gpu.address] = (int(total), int(there.strip() or 0))
    short = {address: counts for address, counts in wanted.items() if counts[0] != counts[1]}
    if short:
        raise NotValidated(
            "not every GPU has its virtual functions",
            details=[f"{address}: {there} of {total}" for address, (total, there) in short.items()],
            resolution="sriov-manage makes them: look into the log of the vGPU manager's pod on this node",
        )


def check_vgpu_devices(context: Context) -> Validated:
    """There are vGPU devices: mediated ones, or virtual functions that have a type."""
    kind = workload(context)
    if kind != VGPU:
        return _elsewhere(kind, VGPU)
    files = context.host.files
    mediated = files.list_dir(MEDIATED)
    typed = [
        address
        for address in files.list_dir(PCI)
        if text_of(files, f"{PCI}/{address}/{VGPU_TYPE}").strip() not in ("", "0")
    ]
    found = [*mediated, *typed]
    if not found:
        raise NotValidated(
            "the node has no vGPU devices",
            details=[f"{MEDIATED} is empty, and no virtual function has a type ({VGPU_TYPE})"],
            resolution="look at the node's label nvidia.com/vgpu.config, and into the log of the vGPU device "
            "manager's pod on this node (nvidia-vgpu-device-manager)",
        )
    return Validated(
        seen=f"{len(found)} vGPU devices",
        files={WORKLOAD_TYPE: f"{kind}\n", Component.VGPU_DEVICES.ready_file: ""},
    )


def check_cc_manager(context: Context) -> Validated:
    """The confidential computing manager is done, where the node's GPUs can do such."""
    if _labels(context.node()).get(CC_CAPABLE) != "true":
        return Validated(seen=f"the node's label {CC_CAPABLE} is not true, so there is nothing to look at")
    path = context.status_file(CC_MANAGER)
    if not context.host.files.exists(path):
        raise NotValidated(
            "the confidential computing manager is not ready",
            details=[f"{path} is missing"],
            resolution="look into the log of its pod on this node (nvidia-cc-manager)",
        )
    return Validated(seen=f"{path} is there", files={Component.CC_MANAGER.ready_file: ""})
