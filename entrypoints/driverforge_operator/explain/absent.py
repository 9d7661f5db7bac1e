"""Why an operand has no pod on a node that wants it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from driverforge_core import nodekeys
from driverforge_operator.explain.causes import NO_POD_YET, likely
from driverforge_operator.explain.complaints import answered, complaints, held_back
from driverforge_operator.explain.finding import Finding, operator_down
from driverforge_operator.explain.scene import Scene
from driverforge_operator.state.kinds import Taint
from driverforge_operator.state.workloads import DaemonSet


def absent(scene: Scene, component: str) -> Finding:
    """There is no DaemonSet, none selects the node, a taint is in the way, or its pods are refused."""
    known = [one for one in scene.sight.daemonsets if one.spec.template.spec.component == component]
    if not known:
        return _undeployed(scene, component)
    daemonset = next((one for one in known if one.selects(scene.labels)), None)
    if daemonset is None:
        return _unselected(scene, component, known)
    if taints := daemonset.untolerated(scene.node.spec.taints):
        return _tainted(scene, daemonset, taints)
    return _uncreated(scene, daemonset)


def leaving(scene: Scene, component: str) -> Finding | None:
    """A pod that was deleted, and is still there: until it is gone its DaemonSet makes no other one here."""
    for pod in scene.leaving(component):
        metadata = pod.metadata
        named = f"-n {metadata.namespace} {metadata.name}"
        return Finding(
            what=f"pod {metadata} is to go since {metadata.deletion_timestamp}, and is still there",
            evidence=tuple(scene.warnings("Pod", metadata.namespace, metadata.name)),
            cause="pod-goes",
            told="its kubelet has not ended it, or a finalizer keeps it; the next one comes after it",
            command=f"kubectl describe pod {named}  # if its node is gone for good: kubectl delete pod "
            f"--force --grace-period=0 {named}",
        )
    return None


def _undeployed(scene: Scene, component: str) -> Finding:
    """The operator made none: what it says why not."""
    what = f"no DaemonSet brings the {component}"
    told = "no operator runs, or it has not come to this yet"
    said = complaints(scene, component)
    return answered(scene, component, what) or operator_down(what, told, scene.sight, said)


def _unselected(scene: Scene, component: str, known: list[DaemonSet]) -> Finding:
    """There are those of other nodes."""

    def wrong(one: DaemonSet) -> list[str]:
        return [
            f"{key}={value}, and the node has {scene.labels.get(key) or 'none'}"
            for key, value in one.spec.template.spec.node_selector.items()
            if scene.labels.get(key) != value
        ]

    nearest = min(known, key=lambda one: len(wrong(one)))
    # the operator's own label last: it comes where all else fits
    first, *further = sorted(wrong(nearest), key=lambda one: one.startswith(nodekeys.DRIVER_OWNER))
    what = f"no DaemonSet selects this node; {nearest.metadata.name}, the nearest, wants {first}"
    if said := held_back(scene, component, what):
        return said
    if (
        not further
        and first.startswith(nodekeys.DRIVER_OWNER)
        and not scene.labels.get(nodekeys.DRIVER_OWNER)
    ):
        told = "the operator has not labelled this node yet: none runs, or it may not label nodes"
        return operator_down(what, told, scene.sight, complaints(scene, component))
    return Finding(
        what=what,
        evidence=(*further, *map(str, complaints(scene, component))),
        cause="not-selected",
        told="no pool of the custom resources is for this node's system, kernel or labels",
        command=f"kubectl get {'nvidiadrivers' if scene.sight.drivers else 'clusterpolicies'} -o yaml",
    )


def _tainted(scene: Scene, daemonset: DaemonSet, taints: list[Taint]) -> Finding:
    told = ", ".join(map(str, taints))
    return Finding(
        what=f"DaemonSet {daemonset.metadata.name} does not stand the node's taint {told}",
        cause="taint",
        told="an untolerated taint keeps the pod away, silently: the DaemonSet counts the node out",
        command=_tolerate(scene, daemonset, taints),
    )


def _tolerate(scene: Scene, daemonset: DaemonSet, taints: list[Taint]) -> str:
    """The custom resource with all its tolerations and the new ones: a list is replaced as a whole."""
    wanted = [{"key": one.key, "operator": "Exists", "effect": one.effect} for one in taints]
    owner = daemonset.metadata.owner
    change: dict[str, Any]
    if owner and owner.kind == "NVIDIADriver" and owner.name in scene.sight.drivers:
        there = scene.sight.drivers[owner.name].spec.get("tolerations") or ()
        change = {"tolerations": [*there, *wanted]}
        target = f"nvidiadriver {owner.name}"
    else:
        policy = scene.sight.policy
        written = msgspec.to_builtins(daemonset.spec.template.spec.tolerations)
        there = [{key: value for key, value in one.items() if value} for one in written]
        change = {"daemonsets": {"tolerations": [*there, *wanted]}}
        target = f"clusterpolicy {policy.metadata.name if policy else 'cluster-policy'}"
    return f"kubectl patch {target} --type=merge -p '{json.dumps({'spec': change})}'"


def _uncreated(scene: Scene, daemonset: DaemonSet) -> Finding:
    """It selects the node and nothing is in the way: the API server refuses the pods, or nobody asks."""
    metadata = daemonset.metadata
    said = scene.warnings("DaemonSet", metadata.namespace, metadata.name)
    row = likely(said, "", otherwise=NO_POD_YET)
    advice = row.filled(
        node=scene.node.metadata.name,
        namespace=metadata.namespace,
        daemonset=metadata.name,
        pod=f"-l app={metadata.labels.get('app', metadata.name)}",
    )
    seen = "selects this node, and has no pod on it" if row is NO_POD_YET else "cannot make its pod"
    return Finding.by(advice, f"DaemonSet {metadata.name} {seen}", said)
