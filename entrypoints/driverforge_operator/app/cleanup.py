"""Take back what the operator made, after its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from driverforge_core import nodekeys
from driverforge_operator.app.taints import ready_taint
from driverforge_operator.ports import Cluster, Kind, kind_at
from driverforge_operator.state.kinds import (
    CLUSTER_POLICY,
    DEFINITION,
    LEASE,
    LEASE_NAME,
    MANAGER,
    NODE,
    NVIDIA_DRIVER,
    OURS,
    OURS_SELECTOR,
    NodeSpec,
    name_of,
)

_RESOURCES: tuple[Kind[Any], ...] = (CLUSTER_POLICY, NVIDIA_DRIVER)


class _Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which fields one writer wrote last: f:metadata → f:labels → f:KEY."""

    manager: str = ""
    fields_v1: dict[str, Any] = msgspec.field(name="fieldsV1", default_factory=dict)


class _Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    managed_fields: list[_Entry] = []


class _Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node, and who wrote what of it."""

    metadata: _Metadata
    spec: NodeSpec = NodeSpec()


_WRITTEN_NODE = kind_at("v1", "Node", "nodes", _Node, namespaced=False)


def clean_up(cluster: Cluster, *, custom_resources: bool) -> Iterator[str]:
    """Do it; yields a line for each thing that was done, and for each that stays."""
    for kind in _RESOURCES:
        # owners first: what they own is not made again meanwhile
        found = [name_of(item) for page in cluster.pages(kind) for item in page.items]
        for name in found:
            if custom_resources:
                cluster.delete(kind, name)
            yield f"{'deleted' if custom_resources else 'stays:'} {kind.name} {name}"
        if custom_resources:
            definition = f"{kind.plural}.{kind.group}"
            cluster.delete(DEFINITION, definition)
            yield f"deleted {DEFINITION.name} {definition}"
    for kind in reversed(OURS):
        # names first: a list that is read page by page is not changed meanwhile
        found = [name_of(item) for page in cluster.pages(kind, labels=OURS_SELECTOR) for item in page.items]
        for name in found:
            cluster.delete(kind, name)
            yield f"deleted {kind.name} {name}"
    cluster.delete(LEASE, LEASE_NAME)
    yield f"deleted {LEASE.name} {LEASE_NAME}"
    for page in cluster.pages(_WRITTEN_NODE):
        for node in page.items:
            yield from _clean(cluster, node.metadata)
            if any(one.key == nodekeys.NOT_READY for one in node.spec.taints):
                version, spec = ready_taint(cluster, node.metadata.name, there=False)
                body = {"metadata": {"resourceVersion": version}, "spec": spec}
                cluster.patch(NODE, node.metadata.name, body)
                yield f"node {node.metadata.name}: removed the taint {nodekeys.NOT_READY}"


def _clean(cluster: Cluster, node: _Metadata) -> Iterator[str]:
    labels, annotations = _ours(node, "labels"), _ours(node, "annotations")
    if labels or annotations:
        change = {"labels": dict.fromkeys(labels), "annotations": dict.fromkeys(annotations)}
        cluster.patch(NODE, node.name, {"metadata": {key: value for key, value in change.items() if value}})
        yield f"node {node.name}: removed {', '.join([*labels, *annotations])}"
    others = [key for key in node.labels if key.startswith(nodekeys.DEPLOY) and key not in labels]
    for key in others:
        yield f"node {node.name}: stays, somebody else wrote it: {key}={node.labels[key]}"


def _ours(node: _Metadata, field: str) -> list[str]:
    """The keys that are there, and that nobody wrote after us."""
    there = getattr(node, field)
    written = {
        key.removeprefix("f:")
        for entry in node.managed_fields
        if entry.manager == MANAGER
        for key in entry.fields_v1.get("f:metadata", {}).get(f"f:{field}", {})
    }
    return sorted(key for key in there if key in written)
