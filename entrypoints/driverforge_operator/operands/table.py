"""The operands of a ClusterPolicy: one row each, beside its manifest.

The order is that of NVIDIA's operator, whose names the states have; state-driver has a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.resources.abc import Traversable

from driverforge_operator.crd.clusterpolicy import ClusterPolicySpec
from driverforge_operator.operands import monitoring, plugin, sandbox, toolkit
from driverforge_operator.operands.manifest import MANIFESTS, Manifest
from driverforge_operator.operands.mig import mig_capable, mig_manager
from driverforge_operator.operands.runtimeclasses import runtime_classes
from driverforge_operator.operands.setting import Setting

Rules = Callable[[list[Manifest], Setting], None]


class Workload(Enum):
    """What the GPUs of a node are for: containers, or virtual machines that get whole GPUs or parts of one.

    Whole GPUs go to the machines of one program, KubeVirt or Kata, in all of a cluster.
    """

    CONTAINER = "container"
    KUBEVIRT = "kubevirt"
    KATA = "kata"
    VGPU = "vgpu"


_CONTAINER, _VGPU = (Workload.CONTAINER,), (Workload.VGPU,)
_PASSTHROUGH = (Workload.KUBEVIRT, Workload.KATA)
_VIRTUAL = (*_PASSTHROUGH, Workload.VGPU)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One state.

    `manifest` is a file in `folder`. It says at `image` which part of the spec names one. `field` is the
    operand's own part, whose settings its first container gets; `environment` names the variable with the
    image where that part names none.

    `switch` is the component in nvidia.com/gpu.deploy.<component>. Nodes get that label if they are for one
    of the `workloads`, and `suits` says of their labels that the operand has something to do there. A switch
    that somebody else has set there stays.

    `gate` is the file in /run/nvidia/validations that its pods wait for, `gpu` the container that uses GPUs
    before anybody offers them. `constrained`: on OpenShift its account has constraints of its own, beside the
    `privileged` ones. `rules` are what no other operand has.
    """

    state: str
    manifest: str
    enabled: Callable[[ClusterPolicySpec], bool]
    folder: Traversable = MANIFESTS
    field: str = ""
    environment: str = ""
    switch: str = ""
    workloads: tuple[Workload, ...] = _CONTAINER
    suits: Callable[[Mapping[str, str]], bool] = lambda _: True
    gate: str = ""
    gpu: str = ""
    constrained: bool = False
    rules: Rules | None = None


def _always(_: ClusterPolicySpec) -> bool:
    return True


def _sandbox(spec: ClusterPolicySpec, mode: str = "") -> bool:
    found = spec.sandbox_workloads
    return found is not None and found.enabled is True and mode in ("", found.mode)


OPERANDS = (
    Operand(
        state="pre-requisites",
        manifest="runtime-classes",
        enabled=lambda spec: spec.cdi is None or not spec.cdi.nri_plugin_enabled,
        rules=runtime_classes,
    ),
    Operand(
        state="state-operator-metrics",
        manifest="operator-metrics",
        enabled=_always,
        rules=monitoring.operator_metrics,
    ),
    Operand(
        state="state-container-toolkit",
        manifest="container-toolkit",
        enabled=lambda spec: spec.toolkit.enabled is not False,
        field="toolkit",
        environment="CONTAINER_TOOLKIT_IMAGE",
        switch="container-toolkit",
        gate="driver-ready",
        rules=toolkit.container_toolkit,
    ),
    Operand(
        state="state-operator-validation",
        manifest="operator-validator",
        enabled=_always,
        field="validator",
        environment="VALIDATOR_IMAGE",
        switch="operator-validator",
        gpu="toolkit-validation",
    ),
    Operand(
        state="state-device-plugin",
        manifest="device-plugin",
        enabled=lambda spec: spec.device_plugin.enabled is not False,
        field="devicePlugin",
        environment="DEVICE_PLUGIN_IMAGE",
        switch="device-plugin",
        gate="toolkit-ready",
        gpu="nvidia-device-plugin",
        rules=plugin.device_plugin,
    ),
    Operand(
        state="state-mps-control-daemon",
        manifest="mps-control-daemon",
        enabled=lambda spec: spec.device_plugin.enabled is not False,
        switch="device-plugin",
        gate="toolkit-ready",
        gpu="mps-control-daemon-ctr",
        rules=plugin.mps_control_daemon,
    ),
    Operand(
        state="state-dcgm",
        manifest="dcgm",
        enabled=lambda spec: spec.dcgm.enabled is not False,
        field="dcgm",
        environment="DCGM_IMAGE",
        switch="dcgm",
        gate="toolkit-ready",
        gpu="nvidia-dcgm-ctr",
        constrained=True,
    ),
    Operand(
        state="state-dcgm-exporter",
        manifest="dcgm-exporter",
        enabled=lambda spec: spec.dcgm_exporter.enabled is not False,
        field="dcgmExporter",
        environment="DCGM_EXPORTER_IMAGE",
        switch="dcgm-exporter",
        gate="toolkit-ready",
        gpu="nvidia-dcgm-exporter",
        constrained=True,
        rules=monitoring.dcgm_exporter,
    ),
    Operand(
        state="gpu-feature-discovery",
        manifest="gpu-feature-discovery",
        enabled=lambda spec: spec.gfd.enabled is not False,
        field="gfd",
        environment="GFD_IMAGE",
        switch="gpu-feature-discovery",
        gate="toolkit-ready",
        gpu="gpu-feature-discovery",
        rules=plugin.gpu_feature_discovery,
    ),
    Operand(
        state="state-mig-manager",
        manifest="mig-manager",
        enabled=lambda spec: spec.mig_manager is None or spec.mig_manager.enabled is not False,
        field="migManager",
        environment="MIG_MANAGER_IMAGE",
        switch="mig-manager",
        suits=mig_capable,
        gate="toolkit-ready",
        gpu="nvidia-mig-manager",
        constrained=True,
        rules=mig_manager,
    ),
    Operand(
        state="state-node-status-exporter",
        manifest="node-status-exporter",
        enabled=lambda spec: spec.node_status_exporter.enabled is True,
        field="nodeStatusExporter",
        environment="VALIDATOR_IMAGE",
        switch="node-status-exporter",
        constrained=True,
        rules=monitoring.monitored,
    ),
    Operand(
        state="state-vgpu-manager",
        manifest="vgpu-manager",
        enabled=lambda spec: (
            _sandbox(spec)
            and bool(spec.vgpu_manager and spec.vgpu_manager.enabled)
            and not spec.driver.use_nvidia_driver_crd
        ),
        field="vgpuManager",
        environment="VGPU_MANAGER_IMAGE",
        switch="vgpu-manager",
        workloads=_VGPU,
        constrained=True,
        rules=sandbox.vgpu_manager,
    ),
    Operand(
        state="state-vgpu-device-manager",
        manifest="vgpu-device-manager",
        enabled=lambda spec: (
            _sandbox(spec) and bool(spec.vgpu_device_manager and spec.vgpu_device_manager.enabled)
        ),
        field="vgpuDeviceManager",
        environment="VGPU_DEVICE_MANAGER_IMAGE",
        switch="vgpu-device-manager",
        workloads=_VGPU,
        gate="vgpu-manager-ready",
        constrained=True,
        rules=sandbox.vgpu_device_manager,
    ),
    Operand(
        state="state-sandbox-validation",
        manifest="sandbox-validator",
        enabled=_sandbox,
        field="validator",
        environment="VALIDATOR_IMAGE",
        switch="sandbox-validator",
        workloads=_VIRTUAL,
        rules=sandbox.sandbox_validator,
    ),
    Operand(
        state="state-vfio-manager",
        manifest="vfio-manager",
        enabled=lambda spec: _sandbox(spec) and bool(spec.vfio_manager and spec.vfio_manager.enabled),
        field="vfioManager",
        environment="VFIO_MANAGER_IMAGE",
        switch="vfio-manager",
        workloads=_PASSTHROUGH,
        constrained=True,
        rules=sandbox.vfio_manager,
    ),
    Operand(
        state="state-sandbox-device-plugin",
        manifest="sandbox-device-plugin",
        enabled=lambda spec: (
            _sandbox(spec, "kubevirt")
            and bool(spec.sandbox_device_plugin and spec.sandbox_device_plugin.enabled)
        ),
        field="sandboxDevicePlugin",
        environment="SANDBOX_DEVICE_PLUGIN_IMAGE",
        switch="sandbox-device-plugin",
        workloads=(Workload.KUBEVIRT, Workload.VGPU),
        gate="vfio-pci-ready",
        constrained=True,
    ),
    Operand(
        state="state-kata-device-plugin",
        manifest="kata-sandbox-device-plugin",
        enabled=lambda spec: (
            _sandbox(spec, "kata")
            and bool(spec.kata_sandbox_device_plugin and spec.kata_sandbox_device_plugin.enabled)
        ),
        field="kataSandboxDevicePlugin",
        environment="KATA_SANDBOX_DEVICE_PLUGIN_IMAGE",
        switch="kata-sandbox-device-plugin",
        workloads=(Workload.KATA,),
        gate="vfio-pci-ready",
        constrained=True,
    ),
    Operand(
        state="state-cc-manager",
        manifest="cc-manager",
        enabled=lambda spec: _sandbox(spec, "kata") and bool(spec.cc_manager and spec.cc_manager.enabled),
        field="ccManager",
        environment="CC_MANAGER_IMAGE",
        switch="cc-manager",
        workloads=_VIRTUAL,
        rules=sandbox.cc_manager,
    ),
)

OTHER_SWITCHES: Mapping[str, tuple[Workload, ...]] = {
    "driver": _CONTAINER,
    "kata-manager": _PASSTHROUGH,
    "client": tuple(Workload),
    "dra-driver": (),
    "dra-validator": (),
    "dcgm-dra": (),
    "dcgm-exporter-dra": (),
}
"""Switches of components without a row, and the nodes that get them. Those without nodes are NVIDIA's alone.

The driver has a module of its own; NVIDIA's operator sets the others, and pods of a site may select by them.
"""


def image_variables(operands: Iterable[Operand]) -> dict[str, str]:
    """The operator's variable with an image, by the part of the spec that names it otherwise."""
    return {
        "vgpuManager.driverManager": "DRIVER_MANAGER_IMAGE",
        "vfioManager.driverManager": "DRIVER_MANAGER_IMAGE",
        **{one.field: one.environment for one in operands if one.field},
    }
