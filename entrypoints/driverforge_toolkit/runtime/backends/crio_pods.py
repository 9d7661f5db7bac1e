"""Which handlers CRI-O still needs: it cannot stop or remove a container whose handler is gone.

It looks the handler up by its name for each of these (cri-o/cri-o, internal/oci/oci.go, getRuntimeHandler),
so that pods stay in Terminating after their handler was taken out (cri-o/cri-o#9521,
NVIDIA/nvidia-container-toolkit#1360). containerd and docker keep what they need with each container.

The runtime interface does not tell a pod's handler here. The files from which CRI-O restores its pods at each
start do (internal/lib/container_server.go, LoadSandbox), also while it is down.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from driverforge_host.ports import Files, text_of
from driverforge_toolkit.runtime.formats.values import REMOVED, lookup

STORAGE = "/var/lib/containers/storage"  # containers-storage.conf(5), graphroot
ANNOTATION = "io.kubernetes.cri-o."  # of each container, from CRI-O itself
HANDLER = f"{ANNOTATION}RuntimeHandler"
KIND, SANDBOX = f"{ANNOTATION}ContainerType", "sandbox"
NAMESPACE, NAME = f"{ANNOTATION}Namespace", f"{ANNOTATION}KubeName"


def pods_by_handler(node: Files, effective: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """The pods that CRI-O has, running or not, by the handler that they name: 'namespace/name'."""
    root = lookup(effective, ("crio", "root"))
    found: dict[str, set[str]] = {}
    for sandbox in _sandboxes(node, str(root) if root not in (REMOVED, "") else STORAGE):
        handler = str(sandbox.get(HANDLER) or "")
        pod = f"{sandbox.get(NAMESPACE, '?')}/{sandbox.get(NAME, '?')}"
        found.setdefault(handler, set()).add(pod)
    return {handler: tuple(sorted(pods)) for handler, pods in found.items() if handler}


def _sandboxes(node: Files, root: str) -> Iterator[Mapping[str, object]]:
    """The annotations of each pod's sandbox."""
    for driver in node.list_dir(root):
        folder = f"{root}/{driver}"
        for name in node.list_dir(folder) if driver.endswith("-containers") else ():
            found = _annotations(text_of(node, f"{folder}/{name}/userdata/config.json"))
            if found.get(KIND) == SANDBOX:
                yield found


def _annotations(spec: str) -> Mapping[str, object]:
    """Those of an OCI spec; {} where it is none: a container that is being made or removed."""
    try:
        found = json.loads(spec).get("annotations")
    except (ValueError, AttributeError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}
