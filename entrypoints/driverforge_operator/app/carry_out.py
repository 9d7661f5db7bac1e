"""Actions, carried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from driverforge_operator.app.taints import ready_taint
from driverforge_operator.app.takeover import take_over
from driverforge_operator.plan.actions import (
    Action,
    Apply,
    Delete,
    LabelNamespace,
    PatchNode,
    SetStatus,
    StandDown,
)
from driverforge_operator.ports import Cluster, Document
from driverforge_operator.state.kinds import KIND_OF, NODE, own_namespace


def carry_out(
    action: Action, cluster: Cluster, *, status: Mapping[str, Any], now: Callable[[], str]
) -> Document | None:
    """Do it; returns what an object or a status is afterwards, as far as we know.

    `status` is what a custom resource said before: a condition that stays keeps its time. `now` is RFC 3339.
    """
    match action:
        case Apply(document=document):
            kind = KIND_OF[document["apiVersion"], document["kind"]]
            if action.first:
                take_over(cluster, kind, action.ref.name)
            return cluster.apply(kind, document)
        case PatchNode():
            metadata: dict[str, Any] = {}
            if action.labels:
                metadata["labels"] = action.labels
            if action.annotations:
                metadata["annotations"] = action.annotations
            body: dict[str, Any] = {"metadata": metadata}
            if action.tainted is not None:
                metadata["resourceVersion"], body["spec"] = ready_taint(
                    cluster, action.node, there=action.tainted
                )
            cluster.patch(NODE, action.node, body)
        case LabelNamespace(name=name, labels=labels):
            cluster.patch(own_namespace(name), name, {"metadata": {"labels": labels}})
        case Delete(ref=ref):
            cluster.delete(KIND_OF[ref.api_version, ref.kind], ref.name, orphan=action.orphan)
        case SetStatus(ref=ref):
            written = _status(action, status, now())
            cluster.patch(KIND_OF[ref.api_version, ref.kind], ref.name, {"status": written}, part="status")
            return written
        case StandDown(ref=ref):
            conditions = [
                one for one in status.get("conditions") or () if one.get("type") != StandDown.CONDITION
            ]
            conditions.append(
                {
                    "type": StandDown.CONDITION,
                    "status": "True",
                    "reason": "OtherOperator",
                    "message": action.message,
                    "observedGeneration": action.generation,
                    "lastTransitionTime": now(),
                }
            )
            # their schema asks for a state; before they have said one it is not ours to say more than that
            written = {"state": "notReady", **status, "conditions": conditions}
            changed = {key: value for key, value in written.items() if status.get(key) != value}
            cluster.patch(KIND_OF[ref.api_version, ref.kind], ref.name, {"status": changed}, part="status")
            return written
    return None


def _status(action: SetStatus, before: Mapping[str, Any], now: str) -> dict[str, Any]:
    known = {one.get("type"): one for one in before.get("conditions") or ()}

    def since(kind: str, value: str) -> str:
        found = known.get(kind, {})
        return str(found["lastTransitionTime"]) if found.get("status") == value else now

    conditions = [
        {
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "message": one.message,
            "observedGeneration": action.generation,
            "lastTransitionTime": since(one.type, one.status),
        }
        for one in action.conditions
    ]
    return {
        "state": action.state,
        "namespace": action.namespace,
        "observedGeneration": action.generation,
        "conditions": conditions,
        # null takes the field away in a merge patch
        "pools": [dict(one) for one in action.pools] or None,
    }
