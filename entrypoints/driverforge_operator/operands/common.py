"""What every operand of a ClusterPolicy gets, whatever it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from driverforge_core import nodekeys
from driverforge_operator.crd.clusterpolicy import DaemonSets, HostPaths, Validator
from driverforge_operator.crd.kubernetes import as_written
from driverforge_operator.crd.read import Problem
from driverforge_operator.operands.manifest import (
    Manifest,
    add_pull_secrets,
    containers,
    contents_of,
    decorate,
    default_env,
    drop_env,
    given_env,
    has_env,
    image_name,
    manifest,
    pod,
    rename_account,
    set_env,
)
from driverforge_operator.operands.objectnames import fnv1a
from driverforge_operator.operands.setting import Setting
from driverforge_operator.state.contents import Content, Source

_DRIVER, _PODS = "/run/nvidia/driver", "/var/lib/kubelet/pod-resources"
_CDI_ALONE = (
    "CDI_ENABLED",
    "CDI_ANNOTATION_PREFIX",
    "NVIDIA_RUNTIME_SET_AS_DEFAULT",
    "NVIDIA_CONTAINER_RUNTIME_MODE",
)
_HOOK = "NVIDIA_CDI_HOOK_PATH"
_CHECKS = {
    "driver": "driver",
    "toolkit": "toolkit",
    "cuda": "cuda",
    "plugin": "plugin",
    "vfio-pci": "vfio_pci",
    "vgpu-manager": "vgpu_manager",
    "vgpu-devices": "vgpu_devices",
}
"""The part of the validator's spec, by the component that a container checks."""


def account(objects: Iterable[Manifest], name: str, namespace: str) -> list[Manifest]:
    """The account of an operand's pods, unless another operand brings it, and bindings to all its roles."""
    roles = [one for one in objects if one["kind"] in ("Role", "ClusterRole")]
    first, openshift = manifest("account")
    rename_account([first, openshift], name, namespace)
    known = next((one for one in roles if one["kind"] == "Role"), None)
    if known:
        known["rules"] += openshift["rules"]
    added = [first] if known else [first, openshift]
    for role in roles if known else [*roles, openshift]:
        binding = {
            "apiVersion": role["apiVersion"],
            "kind": f"{role['kind']}Binding",
            "metadata": {"name": role["metadata"]["name"]},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": role["kind"],
                "name": role["metadata"]["name"],
            },
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
        added.append(binding)
    return added


def daemonsets(workload: Manifest, wish: DaemonSets) -> None:
    """How all DaemonSets roll, and where their pods may run."""
    workload["spec"]["updateStrategy"] = _strategy(wish)
    settings = pod(workload)
    if wish.tolerations:
        settings["tolerations"] = [as_written(one) for one in wish.tolerations]
    if wish.priority_class_name:
        settings["priorityClassName"] = wish.priority_class_name
    if wish.pod_security_context:
        settings["securityContext"] = as_written(wish.pod_security_context)


def _strategy(wish: DaemonSets) -> Manifest:
    if wish.update_strategy == "OnDelete":
        return {"type": "OnDelete"}
    most = (wish.rolling_update.max_unavailable if wish.rolling_update else None) or "1"
    # the API takes a number or a percentage
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": int(most) if most.isdecimal() else most},
    }


def user_metadata(workload: Manifest, wish: DaemonSets) -> None:
    """The labels and annotations that users want on all DaemonSets."""
    decorate(workload, labels=wish.labels, annotations=wish.annotations)


def restart_with(workload: Manifest, known: Mapping[Source, Content]) -> None:
    """Pods start anew when a ConfigMap or Secret of theirs holds something else: most read them once."""
    if used := contents_of(workload, known):
        annotations = workload["spec"]["template"]["metadata"].setdefault("annotations", {})
        annotations[nodekeys.CONTENTS] = str(fnv1a("\n".join(used).encode()))


def host_paths(workload: Manifest, host: HostPaths) -> None:
    """Where a host has its root, its driver and its kubelet."""
    volumes = {one["name"]: one for one in pod(workload).get("volumes", ())}
    root = host.root_fs or "/"
    if root != "/" and "host-root" in volumes:
        volumes["host-root"]["hostPath"]["path"] = root
        if "host-dev-char" in volumes:
            volumes["host-dev-char"]["hostPath"]["path"] = f"{root}/dev/char"
        for one in containers(workload):
            default_env(one, {"HOST_ROOT": root})
    driver = host.driver_install_dir or _DRIVER
    if driver != _DRIVER and "driver-install-dir" in volumes:
        volumes["driver-install-dir"]["hostPath"]["path"] = driver
        for one in containers(workload):
            _driver_there(one, driver)
    for one in volumes.values():
        if one.get("hostPath", {}).get("path") == _PODS:
            one["hostPath"]["path"] = f"{host.kubelet_root_dir}/pod-resources"


def _driver_there(target: Manifest, folder: str) -> None:
    """A container that has the driver where the host has it is told when that is elsewhere."""
    for one in target.get("volumeMounts", ()):
        if one["name"] == "driver-install-dir" and one["mountPath"] == _DRIVER:
            one["mountPath"] = folder
            set_env(target, {"DRIVER_INSTALL_DIR": folder, "DRIVER_INSTALL_DIR_CTR_PATH": folder})


def device_access(workload: Manifest, gpu: str, setting: Setting) -> None:
    """How GPUs come into containers: by runtime class, CDI or NRI; and which MIG devices there are."""
    settings = pod(workload)
    if "runtimeClassName" in settings:
        settings["runtimeClassName"] = setting.runtime_class
        if not setting.runtime_class:
            del settings["runtimeClassName"]
    if setting.nri and gpu:
        annotations = workload["spec"]["template"]["metadata"].setdefault("annotations", {})
        annotations[f"nvidia.cdi.k8s.io/container.{gpu}"] = "management.nvidia.com/gpu=all"
    for one in containers(workload):
        if not setting.cdi:
            drop_env(one, *_CDI_ALONE)
        if has_env(one, _HOOK):
            set_env(one, {_HOOK: f"{setting.spec.toolkit.install_dir}/toolkit/nvidia-cdi-hook"})
            if not (setting.cdi and setting.toolkit):
                drop_env(one, _HOOK)
        if has_env(one, "MIG_STRATEGY") and setting.spec.mig and setting.spec.mig.strategy:
            set_env(one, {"MIG_STRATEGY": setting.spec.mig.strategy})


def checks(workload: Manifest, spec: Validator | None) -> None:
    """A user's variables for the checks of the validator, in whichever pod they run."""
    for one in containers(workload):
        values = {each["name"]: each.get("value", "") for each in one.get("env", ())}
        wish = getattr(spec, _CHECKS.get(values.get("COMPONENT", ""), ""), None)
        if wish and wish.env:
            set_env(one, given_env(wish.env))


def images(workload: Manifest, setting: Setting, variables: Mapping[str, str]) -> list[Problem]:
    """Put images where the manifest names the part of the spec that has them."""
    problems = []
    secrets = []
    for one in containers(workload):
        path = one["image"]
        found = setting.image(path)
        one["image"], one["imagePullPolicy"] = "", found.image_pull_policy or "IfNotPresent"
        secrets.append(found.image_pull_secrets)
        suffix = ""
        if path == "vgpuManager" and setting.gpus:
            if len(setting.oses) != 1:
                told = "nodes have " + (" and ".join(setting.oses) or "no system that is known")
                what = f"{told}: leave this to NVIDIADriver resources, one for each system"
                problems.append(Problem(path=f"spec.{path}", what=what))
                continue
            suffix = f"-{setting.oses[0]}"
        variable = variables[path]
        one["image"] = image_name(found, suffix) or setting.environment.get(variable, "")
        if not one["image"]:
            what = f"has to name repository, image and version: the operator has no {variable} either"
            problems.append(Problem(path=f"spec.{path}", what=what))
        if has_env(one, "VALIDATOR_IMAGE"):
            _started_by_validator(one, setting)
    add_pull_secrets(workload, *secrets)
    return problems


def _started_by_validator(target: Manifest, setting: Setting) -> None:
    """A pod that the validator starts is as its own."""
    set_env(
        target,
        {
            "VALIDATOR_IMAGE": target["image"],
            "VALIDATOR_IMAGE_PULL_POLICY": target["imagePullPolicy"],
            "VALIDATOR_RUNTIME_CLASS": setting.runtime_class,
        },
    )
    if not setting.runtime_class:
        drop_env(target, "VALIDATOR_RUNTIME_CLASS")
    if secrets := setting.image("validator").image_pull_secrets:
        set_env(target, {"VALIDATOR_IMAGE_PULL_SECRETS": ",".join(secrets)})
