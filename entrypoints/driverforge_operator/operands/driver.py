"""The driver of one pool, as an NVIDIADriver or a ClusterPolicy asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from driverforge_core import nodekeys
from driverforge_core.osid import OsId
from driverforge_operator.crd.blocks import Image, SideCar
from driverforge_operator.crd.kubernetes import as_written
from driverforge_operator.crd.nvidiadriver import NvidiaDriverSpec
from driverforge_operator.operands import digest, objectnames
from driverforge_operator.operands.configuration import Mounts
from driverforge_operator.operands.manifest import (
    Manifest,
    add_pull_secrets,
    container,
    contents_of,
    daemonset,
    decorate,
    drop_container,
    drop_volumes,
    given_env,
    image_name,
    manifest,
    own,
    pod,
    rename_account,
    set_env,
    set_image,
    stand_ready_taint,
)
from driverforge_operator.operands.openshiftfit import OpenShift, fit_openshift
from driverforge_operator.state.contents import Content, Source

MANAGER, DRIVER, PEERMEM, GDS, GDRCOPY, TOOLKIT = (
    "k8s-driver-manager",
    "nvidia-driver-ctr",
    "nvidia-peermem-ctr",
    "nvidia-fs-ctr",
    "nvidia-gdrcopy-ctr",
    "openshift-driver-toolkit-ctr",
)
_PRECOMPILED_DELAY = 5  # seconds
_VGPU_HOST = "vgpu-host-manager"
COMPONENT, DRIVER_COMPONENT = "app.kubernetes.io/component", "nvidia-driver"
"""A label of drivers, and its value but on vGPU hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPool:
    """What a pool's driver is made from.

    `os` is as images name it. `kernel` is '' where nodes of any kernel get it; it compiles itself unless
    `precompiled`. `whole`: a ClusterPolicy asks for it, whose lists replace ours where an NVIDIADriver's add.
    `contents` are the ConfigMaps and Secrets that it may be made from. `ready_taint`: nodes have a taint
    until they are validated.
    """

    namespace: str
    name: str
    account: str
    owner: Manifest | None
    os: OsId
    kernel: str
    precompiled: bool
    selector: Mapping[str, str]
    spec: NvidiaDriverSpec
    whole: bool = False
    host_root: str = "/"
    mounts: Mounts = field(default_factory=Mounts)
    openshift: OpenShift | None = None
    contents: Mapping[Source, Content] = field(default_factory=dict)
    ready_taint: bool = False

    @property
    def image(self) -> str:
        suffix = f"-{self.kernel}-{self.os.tag}" if self.precompiled else f"-{self.os.tag}"
        return image_name(self.spec, suffix)

    @property
    def side_cars(self) -> dict[str, SideCar]:
        """Programs beside the driver that have an image of their own, by their containers' names."""
        found = {GDS: self.spec.gds, GDRCOPY: self.spec.gdrcopy}
        return {name: one for name, one in found.items() if one and one.enabled}

    @property
    def images(self) -> tuple[str, ...]:
        """The images whose tags are made here, so that nobody may have made them."""
        return (self.image, *(image_name(one, f"-{self.os.tag}") for one in self.side_cars.values()))

    @property
    def pull_secrets(self) -> tuple[str, ...]:
        """Who may pull them, each once."""
        given = (self.spec, self.spec.manager or Image(), *self.side_cars.values())
        return tuple(dict.fromkeys(name for one in given for name in one.image_pull_secrets or ()))


def driver_objects(pool: DriverPool) -> list[Manifest]:
    """All objects of a pool."""
    objects = manifest("driver")
    workload = daemonset(objects)
    rename_account(objects, pool.account, pool.namespace)
    _identify(workload, pool)
    _settings(workload, pool)
    _images(workload, pool)
    _driver(container(workload, DRIVER), pool)
    _side_cars(workload, pool)
    _fit_type(workload, pool)
    objects = fit_openshift(objects, pool.openshift, pool.namespace)
    _mount(workload, pool.mounts)
    number = digest.digest(_fields(workload, pool))
    for one in (*pod(workload)["initContainers"], *pod(workload)["containers"]):
        if any(variable["name"] == "DRIVER_CONFIG_DIGEST" for variable in one.get("env", ())):
            set_env(one, {"DRIVER_CONFIG_DIGEST": number})
    own(objects, pool.namespace, pool.owner)
    return objects


def startup_probe(namespace: str) -> list[Manifest]:
    """What all driver pods mount."""
    objects = manifest("driver-startup-probe")
    own(objects, namespace, None)
    return objects


def _identify(workload: Manifest, pool: DriverPool) -> None:
    labels = {
        "app": pool.name,
        COMPONENT: DRIVER_COMPONENT,
        "nvidia.com/node.os-version": pool.os.tag,
        "nvidia.com/precompiled": "true" if pool.precompiled else "false",
    }
    if pool.precompiled:
        labels["nvidia.com/precompiled.kernel-version"] = objectnames.kernel_label(pool.kernel)
    if pool.spec.driver_type == _VGPU_HOST:
        labels[COMPONENT] = "nvidia-vgpu-host-manager"
    workload["metadata"]["name"] = pool.name
    workload["metadata"]["labels"].update(labels)
    workload["metadata"]["annotations"] = {"openshift.io/scc": pool.account}
    workload["spec"]["selector"]["matchLabels"]["app"] = pool.name
    workload["spec"]["template"]["metadata"]["labels"].update(labels)
    pod(workload)["nodeSelector"].update(pool.selector)


def _settings(workload: Manifest, pool: DriverPool) -> None:
    """What the resource says of the whole pod."""
    settings, spec = pod(workload), pool.spec
    given = [as_written(one) for one in spec.tolerations or ()]
    settings["tolerations"] = given if pool.whole and given else [*settings["tolerations"], *given]
    if pool.ready_taint:
        stand_ready_taint(workload)
    if spec.node_affinity:
        settings["affinity"]["nodeAffinity"] = as_written(spec.node_affinity)
    if spec.priority_class_name:
        settings["priorityClassName"] = spec.priority_class_name
    if spec.pod_security_context:
        settings["securityContext"] = as_written(spec.pod_security_context)
    if spec.host_network:
        settings.update(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    add_pull_secrets(workload, pool.pull_secrets)
    decorate(workload, labels=spec.labels, annotations=spec.annotations)
    for one in settings["volumes"]:
        if one["name"] == "host-root":
            one["hostPath"]["path"] = pool.host_root or "/"
        elif one["name"] == "mlnx-ofed-usr-src" and _on(spec.rdma) and spec.rdma and spec.rdma.use_host_mofed:
            one["hostPath"]["path"] = "/usr/src"


def _images(workload: Manifest, pool: DriverPool) -> None:
    spec, manager = pool.spec, pool.spec.manager or Image()
    set_image(container(workload, DRIVER), pool.image, spec)
    set_image(container(workload, PEERMEM), pool.image, spec)
    set_image(container(workload, MANAGER), image_name(manager), manager)
    if spec.resources:
        for one in (*pod(workload)["initContainers"], *pod(workload)["containers"]):
            one["resources"] = as_written(spec.resources)


def _driver(driver: Manifest, pool: DriverPool) -> None:
    """How the driver's own container runs."""
    spec = pool.spec
    if pool.whole and spec.args:
        driver["args"] = list(spec.args)
    else:
        driver["args"] += spec.args or ()
    set_env(driver, {"KERNEL_MODULE_TYPE": spec.kernel_module_type})
    if spec.kernel_module_type == "open":
        set_env(driver, {"OPEN_KERNEL_MODULES_ENABLED": "true"})
    for name, switch in ((GDS, "GDS_ENABLED"), (GDRCOPY, "GDRCOPY_ENABLED")):
        if name in pool.side_cars:
            set_env(driver, {switch: "true"})
    set_env(driver, given_env(spec.env))
    for kind, probe in (("liveness", spec.liveness_probe), ("readiness", spec.readiness_probe)):
        if probe:
            driver[f"{kind}Probe"] = {"exec": driver["startupProbe"]["exec"], **as_written(probe)}
    if spec.startup_probe:
        driver["startupProbe"].update(as_written(spec.startup_probe))
    elif pool.precompiled:
        # nothing has to be compiled first
        driver["startupProbe"]["initialDelaySeconds"] = _PRECOMPILED_DELAY


def _side_cars(workload: Manifest, pool: DriverPool) -> None:
    """Leave out what nobody asked for, and fit the rest."""
    spec, cars = pool.spec, pool.side_cars
    driver, manager = container(workload, DRIVER), container(workload, MANAGER)
    if _on(spec.rdma):
        mofed = {"USE_HOST_MOFED": "true"} if spec.rdma and spec.rdma.use_host_mofed else {}
        for one in (driver, manager):
            set_env(one, {"GPU_DIRECT_RDMA_ENABLED": "true", **mofed})
        set_env(container(workload, PEERMEM), mofed)
    else:
        drop_container(workload, PEERMEM)
    for name in (GDS, GDRCOPY):
        if name not in cars:
            drop_container(workload, name)
            continue
        car, found = cars[name], container(workload, name)
        set_image(found, image_name(car, f"-{pool.os.tag}"), car)
        if car.args:
            found["args"] = list(car.args)
        if car.env:
            set_env(found, given_env(car.env))
    if spec.secret_env:
        for name in (DRIVER, *cars):
            container(workload, name)["envFrom"] = [{"secretRef": {"name": spec.secret_env}}]
    if spec.manager:
        set_env(manager, given_env(spec.manager.env))


def _fit_type(workload: Manifest, pool: DriverPool) -> None:
    """A vGPU host has devices of its own, and no nvidia-smi that a probe could ask."""
    if pool.spec.driver_type != _VGPU_HOST:
        drop_volumes(workload, "cgroup", "vfio")
        return
    settings, driver = pod(workload), container(workload, DRIVER)
    del settings["nodeSelector"][nodekeys.DRIVER_SWITCH]
    settings["nodeSelector"][f"{nodekeys.DEPLOY}vgpu-manager"] = "true"
    settings["terminationGracePeriodSeconds"] = 120
    del driver["startupProbe"], driver["lifecycle"]


def _mount(workload: Manifest, mounts: Mounts) -> None:
    pod(workload)["volumes"] += mounts.volumes
    for one in pod(workload)["containers"]:
        if one["name"] != TOOLKIT:
            one["volumeMounts"] += mounts.mounts


def _fields(workload: Manifest, pool: DriverPool) -> dict[str, Any]:
    content = {"Contents": contents_of(workload, pool.contents)}
    if pool.whole:
        return {**digest.fields_of_pod(pod(workload)), **content}
    spec, licence = pool.spec, pool.spec.licensing_config
    cars = {name: image_name(one, f"-{pool.os.tag}") for name, one in pool.side_cars.items()}
    manager = spec.manager or Image()
    return {
        "DriverImage": pool.image,
        "DriverManagerImage": image_name(manager),
        "DriverType": spec.driver_type,
        "KernelModuleType": spec.kernel_module_type,
        "DriverArgs": list(spec.args or ()),
        "DriverEnv": digest.variables(given_env(spec.env)),
        "ManagerEnv": digest.variables(given_env(spec.manager.env if spec.manager else None)),
        "SecretEnvSource": spec.secret_env,
        "LicensingConfigName": licence.secret_name if licence else "",
        "VirtualTopologyConfig": spec.virtual_topology_config and spec.virtual_topology_config.name,
        "KernelModuleConfig": spec.kernel_module_config and spec.kernel_module_config.name,
        "RepoConfig": spec.repo_config and spec.repo_config.name,
        "CertConfig": spec.cert_config and spec.cert_config.name,
        "GPUDirectRDMAEnabled": _on(spec.rdma),
        "PeermemImage": pool.image if _on(spec.rdma) else "",
        "UseHostMOFED": _on(spec.rdma) and bool(spec.rdma and spec.rdma.use_host_mofed),
        "GDSImage": cars.get(GDS, ""),
        "GDSEnabled": GDS in cars,
        "GDSEnv": digest.variables(given_env(spec.gds.env if spec.gds and GDS in cars else None)),
        "GDRCopyImage": cars.get(GDRCOPY, ""),
        "GDRCopyEnabled": GDRCOPY in cars,
        "GDRCopyEnv": digest.variables(
            given_env(spec.gdrcopy.env if spec.gdrcopy and GDRCOPY in cars else None)
        ),
        "UsePrecompiled": pool.precompiled,
        "KernelVersion": pool.kernel if pool.precompiled else "",
        "AdditionalVolumes": digest.volumes(pool.mounts.volumes),
        "AdditionalVolumeMounts": digest.mounts(pool.mounts.mounts),
        "HostRoot": pool.host_root,
        **(pool.openshift.fields if pool.openshift else {}),
        **content,
    }


def _on(part: Any) -> bool:
    return bool(part and part.enabled)
