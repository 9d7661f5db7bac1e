"""The device plugin, GPU Feature Discovery and the MPS daemon, which read one configuration."""

from __future__ import annotations

from driverforge_operator.crd.clusterpolicy import Mps
from driverforge_operator.operands.manifest import (
    Manifest,
    container,
    daemonset,
    pieces,
    pod,
    set_env,
    volume,
)
from driverforge_operator.operands.setting import Setting


def device_plugin(objects: list[Manifest], setting: Setting) -> None:
    workload, spec = daemonset(objects), setting.spec
    main = container(workload, "nvidia-device-plugin")
    _configured(workload, main, setting, image="devicePlugin", program="nvidia-device-plugin")
    set_env(main, {"MPS_ROOT": _mps(workload, setting)})
    if not setting.cdi:
        set_env(main, {"DEVICE_LIST_STRATEGY": "envvar"})
    if spec.gds and spec.gds.enabled:
        set_env(main, {"GDS_ENABLED": "true", "MOFED_ENABLED": "true"})
    if spec.gdrcopy and spec.gdrcopy.enabled:
        set_env(main, {"GDRCOPY_ENABLED": "true"})


def gpu_feature_discovery(objects: list[Manifest], setting: Setting) -> None:
    workload = daemonset(objects)
    main = container(workload, "gpu-feature-discovery")
    if setting.openshift:
        # its Node Feature Discovery reads files
        set_env(main, {"USE_NODE_FEATURE_API": "false"})
    _configured(workload, main, setting, image="gfd", program="gpu-feature-discovery")


def mps_control_daemon(objects: list[Manifest], setting: Setting) -> None:
    workload = daemonset(objects)
    main = container(workload, "mps-control-daemon-ctr")
    _configured(workload, main, setting, image="devicePlugin", program="/usr/bin/mps-control-daemon")
    _mps(workload, setting)


def _mps(workload: Manifest, setting: Setting) -> str:
    root = (setting.spec.device_plugin.mps or Mps()).root
    volume(workload, "mps-root")["hostPath"]["path"] = root
    volume(workload, "mps-shm")["hostPath"]["path"] = f"{root}/shm"
    return root


def _configured(workload: Manifest, main: Manifest, setting: Setting, *, image: str, program: str) -> None:
    """Where there are configurations, a manager beside `program` gives it the one that its node names."""
    config = setting.spec.device_plugin.config
    if config is None or not config.name:
        return
    parts, spec = pieces("config-manager"), pod(workload)
    for one in (*parts["initContainers"], *parts["containers"]):
        one["image"] = image
        set_env(one, {"DEFAULT_CONFIG": config.default or ""})
    (beside,) = parts["containers"]
    set_env(beside, {"PROCESS_TO_SIGNAL": program})
    for field in ("initContainers", "containers", "volumes"):
        spec[field] += parts[field]
    if not spec.get("hostPID"):
        # a signal to a program in another container
        spec["shareProcessNamespace"] = True
    # a fixed name: a ConfigMap's may have dots, a volume's may not
    volume(workload, "available-configs")["configMap"]["name"] = config.name
    main["volumeMounts"] += beside["volumeMounts"]
    set_env(main, {"CONFIG_FILE": "/config/config.yaml"})
