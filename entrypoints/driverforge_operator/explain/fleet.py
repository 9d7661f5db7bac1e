"""The pools of a cluster: which nodes are ready, which wait, and which still run the old driver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from driverforge_operator.explain.documents import (
    NodeIsOld,
    NodeWaits,
    PoolDocument,
    ResourceDocument,
    StatusDocument,
)
from driverforge_operator.explain.gates import closed, gates
from driverforge_operator.explain.outdated import move_on, outdated
from driverforge_operator.explain.scene import DRIVERS, Scene, Sight
from driverforge_operator.explain.sentence import aligned
from driverforge_operator.state.kinds import CLUSTER_POLICY, NVIDIA_DRIVER, CustomResource
from driverforge_operator.state.workloads import DaemonSet, Machine, Pod, WorkloadSpec

_UNREAD = (f"{CLUSTER_POLICY.plural}:", f"{NVIDIA_DRIVER.plural}:")  # as such lines begin
_SHOWN = 20  # nodes of a list for people; programs get all


def fleet(sight: Sight) -> StatusDocument:
    daemonsets = [one for one in sight.daemonsets if one.spec.template.spec.component in DRIVERS]
    pools = {id(one): _pool(one) for one in daemonsets}
    unserved: list[NodeWaits] = []
    for node in sight.nodes.values():
        if not node.gpu:
            continue
        scene = Scene(node=node, sight=sight)
        name, waits = node.metadata.name, _waits(scene)
        own = scene.own(daemonsets)
        if own is None:
            unserved += [waits] if waits else []
            continue
        pool = pools[id(own)]
        if waits:
            pool["waiting"].append(waits)
        else:
            pool["ready"].append(name)
        for pod in scene.operands(own.spec.template.spec.component)[-1:]:
            if outdated(pod, own):
                pool["old"].append(_old(node, pod))
    return {
        "schema": 1,
        "resources": [_resource(kind, one) for kind, one in sight.resources],
        "pools": list(pools.values()),
        "unserved": unserved,
        "unread": list(sight.unread),
    }


def _pool(daemonset: DaemonSet) -> PoolDocument:
    owner = daemonset.metadata.owner
    return {
        "namespace": daemonset.metadata.namespace,
        "daemonset": daemonset.metadata.name,
        "resource": f"{owner.kind}/{owner.name}" if owner else "",
        "driver": _image(daemonset.spec.template.spec),
        "on_delete": daemonset.spec.update_strategy.type == "OnDelete",
        "ready": [],
        "waiting": [],
        "old": [],
    }


def _waits(scene: Scene) -> NodeWaits | None:
    gate = closed(gates(scene))
    if gate is None:
        return None
    return {"node": scene.node.metadata.name, "gate": gate.name, "told": gate.told}


def _image(spec: WorkloadSpec) -> str:
    return spec.containers[0].image if spec.containers else ""


def _old(node: Machine, pod: Pod) -> NodeIsOld:
    return {
        "node": node.metadata.name,
        "pod": str(pod.metadata),
        "driver": _image(pod.spec),
        "command": move_on(pod, node),
    }


def _resource(kind: str, resource: CustomResource) -> ResourceDocument:
    told = [f"{one.get('reason')}: {one.get('message')}".rstrip(": ") for one in resource.true_conditions]
    return {
        "kind": kind,
        "name": resource.metadata.name,
        "state": str(resource.status.get("state", "")) or "no status",
        "told": "; ".join(told),
    }


def as_text(document: StatusDocument) -> str:
    """The same for people: a table of pools, then the nodes that somebody has to look at."""
    lines = [*_resources(document), "", *_pools(document)]
    for pool in document["pools"]:
        lines += _nodes(f"waiting in {pool['daemonset']}", pool["waiting"])
        if pool["old"]:
            how = (
                "drain a node before its driver pod is deleted: a driver in use stays loaded"
                if pool["on_delete"]
                else "they follow by themselves"
            )
            rows = [(one["node"], one["driver"], one["command"]) for one in pool["old"]]
            lines += ["", f"on the old driver in {pool['daemonset']} ({how}):"]
            lines += _cut(aligned([("NODE", "RUNS", "MOVE IT ON"), *rows]))
    lines += _nodes("GPU nodes that no pool serves", document["unserved"])
    lines += ["", *(f"not read: {one}" for one in document["unread"])] if document["unread"] else []
    return "\n".join(lines)


def _resources(document: StatusDocument) -> list[str]:
    resources = document["resources"]
    if not resources and any(one.startswith(_UNREAD) for one in document["unread"]):
        return ["no ClusterPolicy and no NVIDIADriver was read"]
    if not resources:
        return ["no ClusterPolicy and no NVIDIADriver: nothing is asked for"]
    rows = [(f"{one['kind']}/{one['name']}", one["state"], one["told"]) for one in resources]
    return aligned([("RESOURCE", "STATE", "WHAT IT SAYS"), *rows])


def _pools(document: StatusDocument) -> list[str]:
    pools = document["pools"]
    if not pools:
        return ["no driver DaemonSet was read" if document["unread"] else "no driver DaemonSet"]
    rows = [
        (
            one["daemonset"],
            str(len(one["ready"])),
            str(len(one["waiting"])),
            str(len(one["old"])),
            one["driver"],
        )
        for one in pools
    ]
    return aligned([("POOL", "READY", "WAITING", "OLD", "DRIVER"), *rows])


def _nodes(title: str, nodes: Sequence[NodeWaits]) -> list[str]:
    """Grouped by what is seen: forty nodes that wait for one image are one line."""
    if not nodes:
        return []
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in nodes:
        groups[one["gate"], one["told"]].append(one["node"])
    rows = [
        (names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more", gate, told)
        for (gate, told), names in groups.items()
    ]
    return ["", f"{title} (driverforge-operator explain NODE):", *_cut(aligned([_HEADER, *rows]))]


_HEADER = ("NODE", "GATE", "WHAT IS SEEN")


def _cut(lines: list[str]) -> list[str]:
    more = len(lines) - _SHOWN - 1
    return lines if more <= 0 else [*lines[: _SHOWN + 1], f"and {more} more: --json"]
