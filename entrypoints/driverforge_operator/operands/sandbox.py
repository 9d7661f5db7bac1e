"""What nodes for virtual machines get."""

from __future__ import annotations

from driverforge_core import nodekeys
from driverforge_operator.crd.clusterpolicy import SandboxWorkloads, VfioManager, VgpuManager
from driverforge_operator.operands.manifest import (
    Manifest,
    container,
    containers,
    daemonset,
    given_env,
    has_env,
    remove,
    set_env,
    volume,
)
from driverforge_operator.operands.setting import Setting


def vgpu_manager(objects: list[Manifest], setting: Setting) -> None:
    _driver_manager(daemonset(objects), setting.spec.vgpu_manager)


def vfio_manager(objects: list[Manifest], setting: Setting) -> None:
    _driver_manager(daemonset(objects), setting.spec.vfio_manager)


def _driver_manager(workload: Manifest, spec: VgpuManager | VfioManager | None) -> None:
    if spec and spec.driver_manager:
        set_env(container(workload, "k8s-driver-manager"), given_env(spec.driver_manager.env))


def vgpu_device_manager(objects: list[Manifest], setting: Setting) -> None:
    workload, spec = daemonset(objects), setting.spec.vgpu_device_manager
    config = spec.config if spec else None
    if config is None:
        return
    set_env(container(workload, "nvidia-vgpu-device-manager"), {"DEFAULT_VGPU_CONFIG": config.default})
    if config.name:
        remove(objects, "ConfigMap", "default-vgpu-devices-config")
        volume(workload, "vgpu-config")["configMap"]["name"] = config.name


def default_workload(sandbox: SandboxWorkloads) -> str:
    """What nodes are for that do not say it: containers where the ClusterPolicy names no workload, too."""
    wish = sandbox.default_workload
    return wish if wish in nodekeys.WORKLOADS else "container"


def sandbox_validator(objects: list[Manifest], setting: Setting) -> None:
    # validators refuse any other word
    wish = default_workload(setting.spec.sandbox_workloads or SandboxWorkloads())
    for one in containers(daemonset(objects)):
        if has_env(one, "DEFAULT_GPU_WORKLOAD_CONFIG"):
            set_env(one, {"DEFAULT_GPU_WORKLOAD_CONFIG": wish})


def cc_manager(objects: list[Manifest], setting: Setting) -> None:
    mode = setting.spec.cc_manager.default_mode if setting.spec.cc_manager else None
    set_env(container(daemonset(objects), "nvidia-cc-manager"), {"DEFAULT_CC_MODE": mode or ""})
