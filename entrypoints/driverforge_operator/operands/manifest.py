"""Manifests as data: read once, copied for each use, and changed by small functions that all operands share.

The functions change the copy that they are given. They raise KeyError or LookupError where a manifest has not
what they look for: that is a mistake of ours, found by the first test that renders it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from driverforge_core import nodekeys
from driverforge_operator.crd.blocks import Image
from driverforge_operator.crd.kubernetes import EnvVar
from driverforge_operator.ports import Kind
from driverforge_operator.state.contents import Content, Source
from driverforge_operator.state.kinds import MANAGED_BY, MANAGER

Manifest = dict[str, Any]
MANIFESTS = files(__package__).joinpath("manifests")
FOUND_BY = ("app", "app.kubernetes.io/part-of")
"""Labels by which operators find what is theirs: no user's to change."""
_OF_CLUSTER = ("ClusterRole", "ClusterRoleBinding", "RuntimeClass", "SecurityContextConstraints")


@cache
def _documents(name: str, folder: Traversable) -> tuple[Manifest, ...]:
    text = folder.joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return tuple(yaml.load_all(text, Loader=yaml.CSafeLoader))


def manifest(name: str, folder: Traversable = MANIFESTS) -> list[Manifest]:
    """The objects of an operand, in the order in which they are applied."""
    # the folder of a package is a path, which can be hashed
    return copy.deepcopy(list(_documents(name, folder)))  # type: ignore[arg-type]


def pieces(name: str) -> Manifest:
    """Parts of pods: containers and volumes by their field."""
    (found,) = manifest(name)
    return found


def one_of(objects: Iterable[Manifest], kind: str) -> Manifest:
    """The one object of a kind."""
    (found,) = (one for one in objects if one["kind"] == kind)
    return found


def remove(objects: list[Manifest], kind: str, name: str) -> None:
    """Do without an object."""
    (found,) = (one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name))
    objects.remove(found)


def daemonset(objects: Iterable[Manifest]) -> Manifest:
    """The one DaemonSet among an operand's objects."""
    return one_of(objects, "DaemonSet")


def pod(workload: Manifest) -> Manifest:
    """The pod's spec of a DaemonSet."""
    found: Manifest = workload["spec"]["template"]["spec"]
    return found


def containers(workload: Manifest) -> list[Manifest]:
    """All containers of the pod, in the order in which they start."""
    spec = pod(workload)
    return [*spec.get("initContainers", ()), *spec["containers"]]


def container(workload: Manifest, name: str) -> Manifest:
    """A container, or an init container."""
    (found,) = (one for one in containers(workload) if one["name"] == name)
    return found


def volume(workload: Manifest, name: str) -> Manifest:
    """A volume of the pod."""
    (found,) = (one for one in pod(workload)["volumes"] if one["name"] == name)
    return found  # type: ignore[no-any-return]


def contents_of(workload: Manifest, known: Mapping[Source, Content]) -> list[str]:
    """What the ConfigMaps and Secrets hold that the pod uses, as far as it is `known`: a text for each."""
    volumes, programs = pod(workload).get("volumes", ()), containers(workload)
    named = [(False, one["configMap"]["name"]) for one in volumes if "configMap" in one]
    named += [(True, one["secret"]["secretName"]) for one in volumes if "secret" in one]
    given = [one for program in programs for one in program.get("envFrom", ())]
    given += [one.get("valueFrom", {}) for program in programs for one in program.get("env", ())]
    named += [
        (field.startswith("secret"), one["name"])
        for parts in given
        for field, one in parts.items()
        if field in ("configMapRef", "configMapKeyRef", "secretRef", "secretKeyRef")
    ]
    used = [Source(secret=secret, name=name) for secret, name in sorted(set(named))]
    return [f"{one} {known[one].digest}" for one in used if one in known and known[one].digest]


def mount(target: Manifest, name: str) -> Manifest:
    """Where a container has a volume."""
    (found,) = (one for one in target["volumeMounts"] if one["name"] == name)
    return found  # type: ignore[no-any-return]


def drop_container(workload: Manifest, name: str) -> None:
    """Leave out a container that a pool has not."""
    found = container(workload, name)
    pod(workload)["containers"] = [one for one in pod(workload)["containers"] if one is not found]


def drop_volumes(workload: Manifest, *names: str) -> None:
    """Leave out volumes that a pool has not, and their mounts."""
    spec = pod(workload)
    spec["volumes"] = [one for one in spec["volumes"] if one["name"] not in names]
    for one in (*spec.get("initContainers", ()), *spec["containers"]):
        one["volumeMounts"] = [mount for mount in one["volumeMounts"] if mount["name"] not in names]


def own(objects: Iterable[Manifest], namespace: str, owner: Manifest | None) -> None:
    """Put objects into our namespace, mark them as ours, and let them go with their owner."""
    for one in objects:
        metadata = one["metadata"]
        if one["kind"] not in _OF_CLUSTER:
            metadata["namespace"] = namespace
        metadata["labels"] = {**metadata.get("labels", {}), MANAGED_BY: MANAGER}
        if owner:
            metadata["ownerReferences"] = [owner]


def owner_of(kind: Kind[Any], name: str, uid: str) -> Manifest:
    """The reference by which Kubernetes deletes an object after its owner."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def rename_account(objects: Iterable[Manifest], name: str, namespace: str) -> None:
    """Give account, roles and bindings of an operand a name of their own, and its pods that account."""
    for one in objects:
        if one["kind"] == "DaemonSet":
            pod(one)["serviceAccountName"] = name
            continue
        one["metadata"]["name"] = name
        if "roleRef" in one:
            one["roleRef"]["name"] = name
            one["subjects"] = [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]


def image_name(image: Image, tag_suffix: str = "") -> str:
    """The whole name of an image, '' where repository, image or version is missing.

    A digest, and a name that says all by itself, stay as they are.
    """
    name = "/".join(filter(None, (image.repository, image.image)))
    if not image.version:
        return name if image.image and not image.repository else ""
    if image.version.startswith("sha256:"):
        return f"{name}@{image.version}"
    return f"{name}:{image.version}{tag_suffix}"


def image_of(name: str) -> dict[str, str | None]:
    """The fields of an `Image` that a whole name is: 'r.example/a/driver:1' → r.example/a, driver and 1."""
    path, digest, version = name.partition("@")
    if not digest:
        path, _, version = name.rpartition(":") if ":" in name.rpartition("/")[2] else (name, "", "")
    repository, _, image = path.rpartition("/")
    return {"repository": repository or None, "image": image, "version": version or None}


def set_image(target: Manifest, name: str, image: Image) -> None:
    target["image"] = name
    if image.image_pull_policy:
        target["imagePullPolicy"] = image.image_pull_policy


def set_env(target: Manifest, values: Mapping[str, str]) -> None:
    """Set variables of a container; one that is there gets the value, others come last."""
    found = {one["name"]: one for one in target.setdefault("env", [])}
    for name, value in values.items():
        if name in found:
            found[name].pop("valueFrom", None)
            found[name]["value"] = value
        else:
            target["env"].append({"name": name, "value": value})


def has_env(target: Manifest, name: str) -> bool:
    return any(one["name"] == name for one in target.get("env", ()))


def default_env(target: Manifest, values: Mapping[str, str]) -> None:
    """Set the variables of a container that it has not."""
    set_env(target, {name: value for name, value in values.items() if not has_env(target, name)})


def drop_env(target: Manifest, *names: str) -> None:
    """Take variables from a container."""
    target["env"] = [one for one in target.get("env", ()) if one["name"] not in names]


def given_env(variables: Sequence[EnvVar] | None) -> dict[str, str]:
    """A user's variables for `set_env`."""
    return {one.name: one.value or "" for one in variables or ()}


def add_pull_secrets(workload: Manifest, *names: Sequence[str] | None) -> None:
    """Name pull secrets, each once."""
    found = dict.fromkeys(name for some in names for name in some or ())
    if found:
        pod(workload)["imagePullSecrets"] = [{"name": name} for name in found]


def stand_ready_taint(workload: Manifest) -> None:
    """Let pods come to nodes that are not validated: they are what makes them so."""
    toleration = {"key": nodekeys.NOT_READY, "operator": "Exists", "effect": "NoSchedule"}
    pod(workload).setdefault("tolerations", []).append(toleration)


def decorate(
    workload: Manifest, *, labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None
) -> None:
    """A user's labels and annotations on a workload and its pods; those that it is found by stay."""
    kept = {*FOUND_BY, *workload["spec"]["selector"]["matchLabels"]}
    extra = {key: value for key, value in (labels or {}).items() if key not in kept}
    for metadata in (workload["metadata"], workload["spec"]["template"]["metadata"]):
        for field, values in (("labels", extra), ("annotations", annotations or {})):
            if values:
                metadata[field] = {**metadata.get(field, {}), **values}
