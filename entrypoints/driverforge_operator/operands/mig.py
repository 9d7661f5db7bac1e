"""The MIG manager: layouts and clients are ours, or an administrator's."""

from __future__ import annotations

from collections.abc import Mapping

from driverforge_core import nodekeys
from driverforge_operator.crd.clusterpolicy import MigManager
from driverforge_operator.operands.manifest import (
    Manifest,
    container,
    daemonset,
    drop_env,
    remove,
    set_env,
    volume,
)
from driverforge_operator.operands.setting import Setting

_PRODUCTS = ("h100", "a100", "a30")


def mig_capable(labels: Mapping[str, str]) -> bool:
    """Whether a node has GPUs that can be divided, by its labels."""
    if labels.get(nodekeys.VGPU_HOST_DRIVER):
        return False
    if labels.get(nodekeys.MIG_CAPABLE) == "true":
        return True
    product = labels.get(nodekeys.GPU_PRODUCT, "").lower()
    return any(name in product for name in _PRODUCTS)


def mig_manager(objects: list[Manifest], setting: Setting) -> None:
    workload, spec = daemonset(objects), setting.spec.mig_manager or MigManager()
    main = container(workload, "nvidia-mig-manager")
    if spec.config and spec.config.name:
        remove(objects, "ConfigMap", "default-mig-parted-config")
        volume(workload, "mig-parted-config")["configMap"] = {"name": spec.config.name}
        drop_env(main, "DEFAULT_CONFIG_FILE")
        set_env(main, {"CONFIG_FILE": "/mig-parted-config/config.yaml"})
    if spec.gpu_clients_config and spec.gpu_clients_config.name:
        remove(objects, "ConfigMap", "default-gpu-clients")
        volume(workload, "gpu-clients")["configMap"] = {"name": spec.gpu_clients_config.name}
