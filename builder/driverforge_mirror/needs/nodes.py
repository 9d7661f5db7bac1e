"""Node facts out of `kubectl get nodes -o json`: what decides about the driver's image."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driverforge_core.arch import ARCHITECTURES, to_arch
from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease
from driverforge_core.nodekeys import DRIVER_SWITCH, PRE_INSTALLED
from driverforge_core.osid import OsId
from driverforge_mirror.charts.values import is_true, table_at, text_at
from driverforge_mirror.yamltext import Read, read_bytes, read_documents

_FEATURE = "feature.node.kubernetes.io/"
_GPU_LABELS = (
    "nvidia.com/gpu.present",
    *(f"{_FEATURE}pci-{device}.present" for device in ("10de", "0302_10de", "0300_10de")),
)
# status.nodeInfo.osImage is PRETTY_NAME of os-release
_PRETTY = (
    (r"Ubuntu (\d+\.\d+)", "ubuntu"),
    (r"Debian GNU/Linux (\d+)", "debian"),
    (r"Red Hat Enterprise Linux CoreOS (4)(\d\d)\.", "rhcos"),
    (r"Red Hat Enterprise Linux CoreOS (\d+\.\d+)", "rhcos"),
    (r"Red Hat Enterprise Linux (\d+\.\d+)", "rhel"),
    (r"Rocky Linux (\d+\.\d+)", "rocky"),
    (r"Oracle Linux Server (\d+\.\d+)", "ol"),
    (r"SUSE Linux Enterprise Server (\d+) SP(\d+)", "sles"),
    (r"SUSE Linux Enterprise Server (\d+\.\d+)", "sles"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node. `os` is None where neither labels nor nodeInfo tell one that images are named by.

    `without_driver` says why the operator's driver does not run on it, '' where it does.
    """

    name: str
    os: OsId | None
    os_text: str
    kernel: KernelRelease
    arch: str
    runtime: str
    gpu: bool
    without_driver: str
    labels: Mapping[str, str]


def read_nodes(path: Path, read: Read = read_bytes) -> tuple[Node, ...]:
    """The nodes of a dump: a List, or one document a node. InputError for a file without any."""
    found: list[Any] = []
    for document in read_documents(path, read):
        items = document.get("items") if isinstance(document, dict) else None
        found += items if isinstance(items, list) else [document]
    nodes = [one for one in found if isinstance(one, dict) and one.get("kind", "Node") == "Node"]
    if not nodes:
        raise InputError(
            f"{path} holds no node", resolution="write it with: kubectl get nodes -o json > nodes.json"
        )
    return tuple(sorted((_node(one, str(path)) for one in nodes), key=lambda node: node.name))


def _node(document: Mapping[str, Any], where: str) -> Node:
    name = text_at(document, "metadata.name")
    labels = {
        key: value for key, value in table_at(document, "metadata.labels").items() if isinstance(value, str)
    }
    info = table_at(document, "status.nodeInfo")
    kernel = labels.get(f"{_FEATURE}kernel-version.full") or text_at(info, "kernelVersion")
    arch = labels.get("kubernetes.io/arch") or text_at(info, "architecture")
    if not name or not kernel:
        raise InputError(
            f"{where}: a node has no {'kernel' if name else 'name'}",
            details=[name] if name else (),
            resolution="write it with: kubectl get nodes -o json (status.nodeInfo has to be in it)",
        )
    release = KernelRelease.parse(kernel)
    found, told = _os(labels, text_at(info, "osImage"))
    return Node(
        name=name,
        os=found,
        os_text=told,
        kernel=release,
        arch=to_arch(arch or release.machine or ARCHITECTURES[0]),
        runtime=text_at(info, "containerRuntimeVersion").partition(":")[0],
        gpu=any(is_true(labels.get(label, "")) for label in _GPU_LABELS),
        without_driver=_without_driver(labels),
        labels=labels,
    )


def _os(labels: Mapping[str, str], pretty: str) -> tuple[OsId | None, str]:
    name = labels.get(f"{_FEATURE}system-os_release.ID", "")
    version = labels.get(f"{_FEATURE}system-os_release.VERSION_ID", "")
    told = f"{name} {version}".strip() or pretty
    if not name:
        for pattern, known in _PRETTY:
            if found := re.match(pattern, pretty):
                name, version = known, ".".join(found.groups())
                break
    try:
        return OsId(id=name, version=version), told
    except InputError:
        return None, told


def _without_driver(labels: Mapping[str, str]) -> str:
    """Labels by which a node is left without the operator's driver."""
    if labels.get("nvidia.com/gpu.deploy.operands") == "false":
        return "nvidia.com/gpu.deploy.operands is false"
    value = labels.get(DRIVER_SWITCH, "true")
    return f"{DRIVER_SWITCH} is {value}" if value in ("false", PRE_INSTALLED) else ""


def gpu_nodes(nodes: Sequence[Node]) -> tuple[tuple[Node, ...], str]:
    """The nodes with GPUs, and a warning ('' for none): without labels every node counts as one."""
    found = tuple(node for node in nodes if node.gpu)
    if found:
        return found, ""
    return tuple(nodes), (
        f"no node has a label of a GPU (Node Feature Discovery sets it): all {len(nodes)} count as GPU nodes"
    )
