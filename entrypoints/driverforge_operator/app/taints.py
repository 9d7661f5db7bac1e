"""A node's taints are one list, written whole: with all the others, and only if nobody was faster."""

from __future__ import annotations

from typing import Any

import msgspec

from driverforge_core import nodekeys
from driverforge_operator.ports import Cluster, Document, kind_at
from driverforge_operator.state.kinds import VersionedMetadata


class _Spec(msgspec.Struct, frozen=True, kw_only=True):
    taints: list[dict[str, Any]] = []


class _TaintedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node with its taints as they are written, and its version."""

    metadata: VersionedMetadata
    spec: _Spec = _Spec()


_TAINTED = kind_at("v1", "Node", "nodes", _TaintedNode, namespaced=False)


def ready_taint(cluster: Cluster, node: str, *, there: bool) -> tuple[str, Document]:
    """The version of a node, and the `spec` of a patch that puts the ready taint on it, or takes it off."""
    found = cluster.get(_TAINTED, node)
    others = [one for one in found.spec.taints if one["key"] != nodekeys.NOT_READY]
    ours = [{"key": nodekeys.NOT_READY, "effect": "NoSchedule"}] if there else []
    return found.metadata.resource_version, {"taints": [*others, *ours]}
