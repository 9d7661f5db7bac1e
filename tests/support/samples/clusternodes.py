"""Nodes as `kubectl get nodes -o json` writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FEATURE = "feature.node.kubernetes.io/"


def node(
    name: str,
    *,
    os: tuple[str, str] | None = ("ubuntu", "22.04"),
    pretty: str = "",
    kernel: str = "5.15.0-131-generic",
    arch: str = "amd64",
    gpu: bool = True,
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A node; `os` is what Node Feature Discovery labels, None where it does not run."""
    features = (
        {
            f"{_FEATURE}system-os_release.ID": os[0],
            f"{_FEATURE}system-os_release.VERSION_ID": os[1],
            f"{_FEATURE}kernel-version.full": kernel,
        }
        if os
        else {}
    )
    present = {f"{_FEATURE}pci-10de.present": "true"} if gpu else {}
    info = {
        "architecture": arch,
        "containerRuntimeVersion": "containerd://1.7.24",
        "kernelVersion": kernel,
        "osImage": pretty,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/arch": arch, **features, **present, **(labels or {})},
        },
        "status": {"nodeInfo": info},
    }


def write_nodes(folder: Path, *nodes: dict[str, Any]) -> Path:
    path = folder / "nodes.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(nodes)}))
    return path
