"""DRIVER_CONFIG_DIGEST: how a driver is installed, as a number.

NVIDIA's operator makes the same number, so that a driver that it installed is not installed anew by us:
FNV-1a over the fields that are not empty, sorted by name, each as Go's spew prints it. The fields of an
NVIDIADriver are the resource's, those of a ClusterPolicy the finished pod's. What a ConfigMap or Secret holds
is counted by us alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from driverforge_operator.operands.objectnames import fnv1a

Fields = Mapping[str, Any]
_SIDE_CARS = {
    "nvidia-peermem-ctr": ("PeermemImage", "GPUDirectRDMAEnabled", ""),
    "nvidia-fs-ctr": ("GDSImage", "GDSEnabled", "GDSEnv"),
    "nvidia-gdrcopy-ctr": ("GDRCopyImage", "GDRCopyEnabled", "GDRCopyEnv"),
    "openshift-driver-toolkit-ctr": ("DTKImage", "DTKEnabled", ""),
}
_NOT_ABOUT_THE_DRIVER = ("DRIVER_CONFIG_DIGEST", "NVIDIA_VISIBLE_DEVICES")


def digest(fields: Fields) -> str:
    """The number of a configuration. A value is a text, a switch, texts, or records of one kind."""
    told = "".join(f"{name}:{_spew(value)}" for name, value in sorted(fields.items()) if value)
    return str(fnv1a(told.encode()))


def variables(given: Mapping[str, str]) -> list[Fields]:
    """Environment variables as a field's value."""
    return [{"Name": name, "Value": given[name]} for name in sorted(given)]


def volumes(found: Iterable[Fields]) -> list[Fields]:
    """A pod's volumes as a field's value."""
    return sorted(
        (
            {
                "Name": one["name"],
                "ConfigMapName": one.get("configMap", {}).get("name", ""),
                "SecretName": one.get("secret", {}).get("secretName", ""),
                "HostPath": one.get("hostPath", {}).get("path", ""),
            }
            for one in found
        ),
        key=lambda one: str(one["Name"]),
    )


def mounts(found: Iterable[Fields]) -> list[Fields]:
    """A container's mounts as a field's value."""
    return sorted(
        (
            {
                "Name": one["name"],
                "MountPath": one["mountPath"],
                "SubPath": one.get("subPath", ""),
                "ReadOnly": bool(one.get("readOnly")),
            }
            for one in found
        ),
        key=lambda one: (str(one["Name"]), str(one["MountPath"])),
    )


def fields_of_pod(spec: Fields) -> dict[str, Any]:
    """What a finished driver pod says of how the driver is installed."""
    containers = {one["name"]: one for one in (*spec["initContainers"], *spec["containers"])}
    driver, manager = containers["nvidia-driver-ctr"], containers["k8s-driver-manager"]
    found: dict[str, Any] = {
        "DriverImage": driver["image"],
        "DriverManagerImage": manager["image"],
        "DriverCommand": driver["command"],
        "DriverArgs": driver["args"],
        "DriverEnv": variables(_direct(driver, without=_NOT_ABOUT_THE_DRIVER)),
        "ManagerEnv": variables(_direct(manager, without=_NOT_ABOUT_THE_DRIVER[:1])),
        "SecretEnvSource": "".join(one["secretRef"]["name"] for one in driver.get("envFrom", ())),
        "AdditionalVolumeMounts": mounts(driver["volumeMounts"]),
        "AdditionalVolumes": volumes(spec["volumes"]),
        "HostRoot": next(one["hostPath"]["path"] for one in spec["volumes"] if one["name"] == "host-root"),
    }
    for name, (image, switch, env) in _SIDE_CARS.items():
        if name in containers:
            found |= {image: containers[name]["image"], switch: True}
            if env:
                found[env] = variables(_direct(containers[name]))
    return found


def _direct(container: Fields, without: Sequence[str] = ()) -> dict[str, str]:
    """Variables whose value is written, not taken from the pod."""
    return {
        one["name"]: one["value"]
        for one in container.get("env", ())
        if "valueFrom" not in one and one["name"] not in without
    }


def _spew(value: Any) -> str:
    """A value as github.com/davecgh/go-spew prints it with %#v."""
    match value:
        case bool():
            return f"(bool){str(value).lower()}"
        case str():
            return f"(string){value}"
        case [str(), *_]:
            return f"([]string)[{' '.join(value)}]"
        case [{"Value": _}, *_]:
            kind = "EnvVar"
        case [{"MountPath": _}, *_]:
            kind = "VolumeMountConfig"
        case _:
            kind = "VolumeConfig"
    records = (" ".join(f"{name}:{_spew(part)}" for name, part in one.items()) for one in value)
    return f"([]config.{kind})[{' '.join(f'{{{one}}}' for one in records)}]"
