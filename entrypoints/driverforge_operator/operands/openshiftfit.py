"""What OpenShift adds: constraints of security contexts; to a driver its toolkit, proxy and authorities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from driverforge_core import nodekeys
from driverforge_operator.operands.manifest import (
    Manifest,
    container,
    containers,
    drop_container,
    manifest,
    pod,
    set_env,
)

_DRIVER, _TOOLKIT, _GDS, _GDRCOPY = (
    "nvidia-driver-ctr",
    "openshift-driver-toolkit-ctr",
    "nvidia-fs-ctr",
    "nvidia-gdrcopy-ctr",
)
_SHARED = "shared-nvidia-driver-toolkit"
_AUTHORITIES = "gpu-operator-trusted-ca"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenShift:
    """An OpenShift cluster, and one release of its nodes' system.

    `toolkit`: the driver toolkit compiles, by the image of `toolkit_image`, '' where none is known for the
    release `rhcos`. `authorities`: the cluster has its own certificates.
    """

    version: str
    toolkit: bool = False
    rhcos: str = ""
    toolkit_image: str = ""
    http_proxy: str = ""
    https_proxy: str = ""
    no_proxy: str = ""
    authorities: bool = False

    @property
    def fields(self) -> dict[str, Any]:
        """What of it is in the driver's digest."""
        return {
            "OpenshiftVersion": self.version,
            "DTKEnabled": self.toolkit,
            "DTKImage": self.toolkit_image,
            "RHCOSVersion": self.rhcos,
            "HTTPProxy": self.http_proxy,
            "HTTPSProxy": self.https_proxy,
            "NoProxy": self.no_proxy,
            "TrustedCAConfigMapName": _AUTHORITIES if self.authorities else "",
        }


def constraints(workload: Manifest, namespace: str) -> Manifest:
    """What the account of a workload's pods may do: of the host what they ask for, and all else."""
    (found,), settings = manifest("constraints"), pod(workload)
    account = settings["serviceAccountName"]
    found["metadata"]["name"] = account
    found["users"] = [f"system:serviceaccount:{namespace}:{account}"]
    for part in ("IPC", "Network", "PID"):
        found[f"allowHost{part}"] = settings.get(f"host{part}", False)
    ports = (port for one in containers(workload) for port in one.get("ports", ()))
    found["allowHostPorts"] = any("hostPort" in port for port in ports)
    return found


def fit_openshift(objects: Sequence[Manifest], found: OpenShift | None, namespace: str) -> list[Manifest]:
    """The driver's objects, with what is OpenShift's where this is one."""
    *others, workload = objects
    if found is None or not found.toolkit:
        drop_container(workload, _TOOLKIT)
    if found is None:
        return list(objects)
    others.append(constraints(workload, namespace))
    if found.toolkit:
        _fit_toolkit(workload, found)
        others += _authorities(workload, found)
    return [*others, workload]


def _fit_toolkit(workload: Manifest, found: OpenShift) -> None:
    labels = {"openshift.driver-toolkit": "true"}
    driver = container(workload, _DRIVER)
    set_env(driver, {"OPENSHIFT_VERSION": found.version})
    if not found.toolkit_image:
        labels["openshift.driver-toolkit.rhcos-image-missing"] = "true"
        set_env(driver, {"RHCOS_IMAGE_MISSING": "true", "RHCOS_VERSION": found.rhcos})
    workload["metadata"]["labels"] |= {**labels, "openshift.driver-toolkit.rhcos": found.rhcos}
    workload["spec"]["template"]["metadata"]["labels"] |= labels
    pod(workload)["nodeSelector"][nodekeys.OSTREE_VERSION] = found.rhcos
    for name, value in (
        ("HTTP_PROXY", found.http_proxy),
        ("HTTPS_PROXY", found.https_proxy),
        ("NO_PROXY", found.no_proxy),
    ):
        if value:
            set_env(driver, {name: value, name.lower(): value})
    pod(workload)["volumes"].append({"name": _SHARED, "emptyDir": {}})
    for name, program in ((_DRIVER, "nv-ctr"), (_GDS, "nv-fs-ctr"), (_GDRCOPY, "gdrcopy-ctr")):
        for one in pod(workload)["containers"]:
            if one["name"] == name:
                one["command"], one["args"] = ["ocp_dtk_entrypoint"], [f"{program}-run-with-dtk"]
                one["volumeMounts"].append({"name": _SHARED, "mountPath": f"/mnt/{_SHARED}"})
    toolkit = container(workload, _TOOLKIT)
    toolkit["image"] = found.toolkit_image
    set_env(toolkit, {"RHCOS_VERSION": found.rhcos})
    if not found.toolkit_image:
        drop_container(workload, _TOOLKIT)
    elif any(one["name"] == _GDRCOPY for one in pod(workload)["containers"]):
        set_env(toolkit, {"GDRCOPY_ENABLED": "true"})


def _authorities(workload: Manifest, found: OpenShift) -> list[Manifest]:
    """The ConfigMap that OpenShift fills with the cluster's certificates: what is in it is never ours."""
    if not found.authorities:
        return []
    container(workload, _DRIVER)["volumeMounts"].append(
        {"name": _AUTHORITIES, "mountPath": "/etc/pki/ca-trust/extracted/pem", "readOnly": True}
    )
    items = [{"key": "ca-bundle.crt", "path": "tls-ca-bundle.pem"}]
    pod(workload)["volumes"].append(
        {"name": _AUTHORITIES, "configMap": {"name": _AUTHORITIES, "items": items}}
    )
    labels = {"config.openshift.io/inject-trusted-cabundle": "true"}
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": _AUTHORITIES, "labels": labels},
        }
    ]
