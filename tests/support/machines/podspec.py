"""From a Kubernetes manifest to the OCI runtime specification that a node makes of it.

The node is a kubelet and containerd's CRI plugin (1.6). Only what a driver or toolkit pod has is known:
privileged containers with host paths. A field that is not known raises, so a manifest cannot mean more to a
cluster than it means here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driverforge_core.errors import InputError, Unsupported
from support.machines.store import StoredImage

NODE = "guest"
_WORKLOADS = ("DaemonSet", "Deployment", "Job")
# Fields that change what the kubelet or the scheduler does around a container, not the container.
_POD_AROUND = frozenset(
    {
        "affinity",
        "automountServiceAccountToken",
        "nodeSelector",
        "priorityClassName",
        "restartPolicy",
        "serviceAccountName",
    }
    | {"terminationGracePeriodSeconds", "tolerations", "dnsPolicy"}
)
_POD_KNOWN = _POD_AROUND | {"containers", "hostIPC", "hostNetwork", "hostPID", "initContainers", "volumes"}
_CONTAINER_AROUND = frozenset(
    {
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "terminationMessagePath",
        "resources",
    }
)
_CONTAINER_KNOWN = _CONTAINER_AROUND | {
    "args",
    "command",
    "env",
    "image",
    "name",
    "securityContext",
    "volumeMounts",
    "workingDir",
}
_PROPAGATION = {"None": "rprivate", "HostToContainer": "rslave", "Bidirectional": "rshared"}
_SECURITY_KNOWN = frozenset({"privileged", "seLinuxOptions", "runAsUser"})
_HOST_PATH_TYPES = frozenset(
    {"", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPath:
    """A volume as the kubelet checks or makes it before the container starts."""

    path: str
    kind: str  # the volume's type: '' makes a folder where there is nothing, as containerd does


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What the node contributes: its device nodes (OCI `linux.devices` entries) and root's capabilities."""

    devices: Sequence[Mapping[str, Any]]
    capabilities: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One container of a manifest, ready to run."""

    name: str
    namespace: str
    uid: str
    container: str
    host_paths: tuple[HostPath, ...]
    spec: Mapping[str, Any]  # the OCI runtime specification, without root.path


def translate(
    documents: Iterable[Mapping[str, Any]],
    *,
    image: StoredImage,
    node: NodeFacts,
    kind: str = "DaemonSet",
    container: str = "",
    arguments: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Pod:
    """Translate the first object of `kind` in a manifest's documents.

    `container` picks one by name, by default the first. `arguments` and `environment` stand for an edit of
    the manifest: they replace `args`, and add to `env`. Raises Unsupported with every field that is not
    known, InputError where the object is missing.
    """
    workload = next((document for document in documents if document and document.get("kind") == kind), None)
    if workload is None:
        raise InputError(f"the manifest has no {kind}")
    template = workload["spec"]["template"] if kind in _WORKLOADS else workload
    pod = template["spec"]
    every = [*pod.get("initContainers", []), *pod["containers"]]
    chosen = (
        next((entry for entry in every if entry["name"] == container), None)
        if container
        else pod["containers"][0]
    )
    if chosen is None:
        raise InputError(
            f"the pod has no container '{container}'", details=[entry["name"] for entry in every]
        )
    _refuse_unknown(pod, chosen)
    if arguments is not None:
        chosen = {**chosen, "args": list(arguments)}
    name = f"{workload['metadata']['name']}-{NODE}"
    namespace = workload["metadata"].get("namespace", "default")
    uid = _uid(namespace, name)
    variables = {**_environment(chosen, image, name, namespace), **(environment or {})}
    mounts, host_paths = _volumes(pod, chosen)
    return Pod(
        name=name,
        namespace=namespace,
        uid=uid,
        container=chosen["name"],
        host_paths=host_paths,
        spec=_spec(
            pod, chosen, image=image, node=node, variables=variables, mounts=mounts, name=name, uid=uid
        ),
    )


def _refuse_unknown(pod: Mapping[str, Any], container: Mapping[str, Any]) -> None:
    security = container.get("securityContext", {})
    problems = [f"pod field {key}" for key in sorted(set(pod) - _POD_KNOWN)]
    problems += [f"container field {key}" for key in sorted(set(container) - _CONTAINER_KNOWN)]
    problems += [f"securityContext.{key}" for key in sorted(set(security) - _SECURITY_KNOWN)]
    if not security.get("privileged"):
        problems.append("a container that is not privileged")
    if security.get("runAsUser", 0) != 0:
        problems.append("a user other than root")
    if pod.get("automountServiceAccountToken", True):
        problems.append("a mounted service account token: set automountServiceAccountToken: false")
    if container.get("resources"):
        problems.append("resources that are not empty")
    if problems:
        raise Unsupported("the bench cannot run this pod as a kubelet would", details=problems)


def _uid(namespace: str, name: str) -> str:
    text = hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:32]}"


def _environment(
    container: Mapping[str, Any], image: StoredImage, name: str, namespace: str
) -> dict[str, str]:
    fields = {
        "spec.nodeName": NODE,
        "metadata.name": name,
        "metadata.namespace": namespace,
        "status.hostIP": "127.0.0.1",
    }
    variables = dict(entry.partition("=")[::2] for entry in image.environment)
    variables["HOSTNAME"] = name
    for entry in container.get("env", []):
        if "valueFrom" not in entry:
            variables[entry["name"]] = entry.get("value", "")
            continue
        source = entry["valueFrom"]
        if set(source) != {"fieldRef"} or source["fieldRef"]["fieldPath"] not in fields:
            raise Unsupported(f"the bench cannot resolve the variable {entry['name']}", details=[str(source)])
        variables[entry["name"]] = fields[source["fieldRef"]["fieldPath"]]
    return variables


def _volumes(
    pod: Mapping[str, Any], container: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], tuple[HostPath, ...]]:
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    mounts, paths = [], []
    for entry in container.get("volumeMounts", []):
        if unknown := set(entry) - {"name", "mountPath", "mountPropagation", "readOnly"}:
            raise Unsupported(
                "the bench does not know these fields of a volume mount", details=sorted(unknown)
            )
        volume = volumes.get(entry["name"])
        if volume is None:
            raise InputError(f"the pod has no volume '{entry['name']}'")
        if set(volume) != {"name", "hostPath"} or volume["hostPath"].get("type", "") not in _HOST_PATH_TYPES:
            raise Unsupported(
                f"the bench knows host paths only, not the volume '{entry['name']}'", details=[str(volume)]
            )
        source = volume["hostPath"]
        paths.append(HostPath(path=source["path"], kind=source.get("type", "")))
        propagation = _PROPAGATION[entry.get("mountPropagation", "None")]
        access = "ro" if entry.get("readOnly") else "rw"
        options = ["rbind", propagation, access]
        mounts.append(
            {"destination": entry["mountPath"], "type": "bind", "source": source["path"], "options": options}
        )
    return mounts, tuple(paths)


def _spec(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    *,
    image: StoredImage,
    node: NodeFacts,
    variables: Mapping[str, str],
    mounts: list[dict[str, Any]],
    name: str,
    uid: str,
) -> dict[str, Any]:
    command = container.get("command") or image.entrypoint
    # The image's command counts only where the manifest gives neither (Kubernetes, "Define a Command and
    # Arguments").
    words = container.get("args") or (() if container.get("command") else image.command)
    every = [*_SYSTEM_MOUNTS, *mounts]
    # parents first, as the CRI plugin orders them
    every.sort(key=lambda mount: mount["destination"].rstrip("/").count("/"))
    propagations = {option for mount in mounts for option in mount["options"]} & {"rshared", "rslave"}
    critical = pod.get("priorityClassName") == "system-node-critical"
    capabilities = list(node.capabilities)
    linux: dict[str, Any] = {
        "cgroupsPath": f"/kubepods/besteffort/pod{uid}/{container['name']}",
        "devices": list(node.devices),
        "namespaces": [{"type": kind} for kind in _namespaces(pod)],
        "resources": {"devices": [{"allow": True, "access": "rwm"}], "cpu": {"shares": 2}},
    }
    if propagations:
        linux["rootfsPropagation"] = "rshared" if "rshared" in propagations else "rslave"
    return {
        "ociVersion": "1.0.2",
        "hostname": name,
        "process": {
            "args": [*command, *words],
            "capabilities": dict.fromkeys(
                ("bounding", "effective", "permitted", "inheritable"), capabilities
            ),
            "cwd": container.get("workingDir") or image.directory,
            "env": [f"{key}={value}" for key, value in variables.items()],
            "oomScoreAdj": -997 if critical else 1000,
            "user": {"uid": 0, "gid": 0},
        },
        "root": {"readonly": False},
        "mounts": every,
        "annotations": {
            "io.kubernetes.cri.container-name": container["name"],
            "io.kubernetes.cri.sandbox-name": name,
        },
        "linux": linux,
    }


def _namespaces(pod: Mapping[str, Any]) -> list[str]:
    shared = {"pid": "hostPID", "ipc": "hostIPC", "network": "hostNetwork"}
    return [
        "mount",
        *([] if pod.get("hostNetwork") else ["uts"]),
        *(kind for kind, field in shared.items() if not pod.get(field)),
    ]


def _system_mount(destination: str, kind: str, source: str, options: str) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source, "options": options.split(",")}


# what the CRI plugin gives a privileged container: /sys and cgroups writable, nothing masked
_SYSTEM_MOUNTS = (
    _system_mount("/proc", "proc", "proc", "nosuid,noexec,nodev"),
    _system_mount("/dev", "tmpfs", "tmpfs", "nosuid,strictatime,mode=755,size=65536k"),
    _system_mount("/dev/pts", "devpts", "devpts", "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5"),
    _system_mount("/dev/mqueue", "mqueue", "mqueue", "nosuid,noexec,nodev"),
    _system_mount("/dev/shm", "tmpfs", "shm", "nosuid,noexec,nodev,mode=1777,size=65536k"),
    _system_mount("/sys", "sysfs", "sysfs", "nosuid,noexec,nodev,rw"),
    _system_mount("/sys/fs/cgroup", "cgroup", "cgroup", "nosuid,noexec,nodev,relatime,rw"),
    _system_mount("/etc/hosts", "bind", "/etc/hosts", "rbind,rprivate,rw"),
    _system_mount("/etc/hostname", "bind", "/etc/hostname", "rbind,rprivate,rw"),
    _system_mount("/etc/resolv.conf", "bind", "/etc/resolv.conf", "rbind,rprivate,rw"),
)
