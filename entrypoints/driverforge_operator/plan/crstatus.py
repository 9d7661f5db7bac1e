"""What custom resources say became of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driverforge_operator.crd.kubernetes import LONGEST_MESSAGE
from driverforge_operator.operands.driver import DRIVER
from driverforge_operator.operands.manifest import FOUND_BY
from driverforge_operator.plan.actions import ConditionNow, PoolSummary, SetStatus
from driverforge_operator.plan.intent import Driver, Intent, Policy
from driverforge_operator.plan.operandstates import StateNow, operands_wait_for
from driverforge_operator.plan.placement import Census
from driverforge_operator.plan.pools import Pool
from driverforge_operator.plan.rejected import DRIVER_STATE, EXAMPLES, counted, more, some
from driverforge_operator.ports import Document, Ref
from driverforge_operator.state.kinds import CLUSTER_POLICY, MANAGED_BY, NVIDIA_DRIVER, CustomResource


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the nodes and pools are to each resource, looked at once for all: there may be thousands.

    `conflicts` has words by an NVIDIADriver's name; `left_out` what is told of nodes that one claims ('' for
    the ClusterPolicy's) and cannot serve; `pools`, and what the API server said about objects that it
    `rejected`, and words about objects that are `held`, are by the uid of who asks for them.
    """

    conflicts: Mapping[str, str]
    left_out: Mapping[str, Sequence[str]]
    pools: Mapping[str, Sequence[Pool]]
    rejected: Mapping[str, str]
    held: Mapping[str, str]


def _seen(
    census: Census, pools: Sequence[Pool], rejected: Mapping[str, str], held: Mapping[str, str]
) -> _Seen:
    conflicts: dict[str, str] = {}
    left_out: dict[str, list[str]] = defaultdict(list)
    by_uid: dict[str, list[Pool]] = defaultdict(list)
    for placement, names in census.items():
        if len(placement.claims) > 1:
            told = (
                f"{some(placement.claims)} claim {counted(names)}: nothing changes there until the "
                "nodeSelector of only one matches"
            )
            for name in placement.claims:
                conflicts.setdefault(name, told)
        elif placement.told:
            left_out[placement.owner].append(f"nothing changes on {counted(names)}: {placement.reason}")
    for one in pools:
        by_uid[one.uid].append(one)
    return _Seen(conflicts=conflicts, left_out=left_out, pools=by_uid, rejected=rejected, held=held)


def statuses(
    intent: Intent,
    census: Census,
    pools: Sequence[Pool],
    operands: Sequence[StateNow],
    *,
    objects: Mapping[Ref, Document],
    resources: Mapping[Ref, CustomResource],
    rejected: Mapping[str, str],
    held: Mapping[str, str],
) -> list[SetStatus]:
    """Those that are not written yet. While a registry is asked, what was said stays.

    `rejected` and `held` have words by the uid of a resource.
    """
    asked = {one.uid for one in pools if one.reason and not one.message}
    seen = _seen(census, pools, rejected, held)
    wanted = [_ignored(name, intent, resources) for name in intent.ignored]
    if intent.policy and intent.policy.uid not in asked:
        wanted.append(_policy(intent.policy, intent, census, seen, operands, objects=objects))
    wanted += [_driver(one, intent, seen, objects) for one in intent.drivers if one.uid not in asked]
    return [one for one in wanted if not written(one, resources[one.ref].status)]


def written(wanted: SetStatus, status: Mapping[str, object]) -> bool:
    """Whether a status says already what it shall say, leaving its times aside."""
    conditions = status.get("conditions")
    if not isinstance(conditions, list):
        return False
    found = {
        (one.get("type"), one.get("status"), one.get("reason"), one.get("message")) for one in conditions
    }
    return (
        status.get("state") == wanted.state
        and status.get("namespace") == wanted.namespace
        and status.get("observedGeneration") == wanted.generation
        and found == {(one.type, one.status, one.reason, one.message) for one in wanted.conditions}
        and (status.get("pools") or []) == [dict(one) for one in wanted.pools]
    )


def _ignored(name: str, intent: Intent, resources: Mapping[Ref, CustomResource]) -> SetStatus:
    oldest = intent.policy.name if intent.policy else ""
    ref = CLUSTER_POLICY.ref(name)
    return SetStatus(
        ref=ref,
        state="ignored",
        namespace=intent.namespace,
        generation=resources[ref].metadata.generation,
        conditions=_error("Ignored", f"ClusterPolicy {oldest} is older, and only one counts: delete either"),
    )


def _policy(
    policy: Policy,
    intent: Intent,
    census: Census,
    seen: _Seen,
    operands: Sequence[StateNow],
    *,
    objects: Mapping[Ref, Document],
) -> SetStatus:
    summaries = tuple(_summary(one, objects) for one in seen.pools.get(policy.uid, ()))
    others = operands_wait_for(operands, objects)
    state, conditions = _policy_outcome(policy, census, seen, summaries, others)
    return SetStatus(
        ref=CLUSTER_POLICY.ref(policy.name),
        state=state,
        namespace=intent.namespace,
        generation=policy.generation,
        conditions=conditions,
        pools=summaries,
    )


def _policy_outcome(
    policy: Policy,
    census: Census,
    seen: _Seen,
    summaries: Sequence[PoolSummary],
    others: Mapping[str, list[str]],
) -> tuple[str, tuple[ConditionNow, ...]]:
    if policy.problems:
        return "notReady", _error("InvalidSpec", "; ".join(map(str, policy.problems)))
    if stuck := _stuck(policy.uid, seen):
        return "notReady", stuck
    instead = _beside(policy.uid, seen)
    driver = _waiting("", seen, summaries)
    if waiting := {**({DRIVER_STATE: driver} if driver else {}), **others}:
        words = "; ".join([*(told for state in waiting.values() for told in state), *instead])
        told = f"ClusterPolicy is not ready; states not ready: [{' '.join(waiting)}]: {words}"
        return "notReady", _error("OperandNotReady", told)
    if policy.uid in seen.held:
        return "notReady", _error("DeletionHeld", "; ".join(instead))
    if not any(one.labelled for one in census):
        told = "no node has labels of Node Feature Discovery: install it, or wait for it"
        return "ready", _ready("NFDLabelsMissing", told)
    if not any(one.gpu for one in census):
        return "ready", _ready("NoGPUNodes", "no node has a GPU")
    labels = policy.spec.daemonsets.labels if policy.spec else None
    return "ready", _ready("Reconciled", "; ".join([*_unheard("spec.daemonsets.labels", labels), *instead]))


def _driver(driver: Driver, intent: Intent, seen: _Seen, objects: Mapping[Ref, Document]) -> SetStatus:
    summaries = tuple(_summary(one, objects) for one in seen.pools.get(driver.uid, ()))
    state, conditions = _outcome(driver, intent, seen, summaries)
    return SetStatus(
        ref=NVIDIA_DRIVER.ref(driver.name),
        state=state,
        namespace=intent.namespace,
        generation=driver.generation,
        conditions=conditions,
        pools=summaries,
    )


def _outcome(
    driver: Driver, intent: Intent, seen: _Seen, summaries: Sequence[PoolSummary]
) -> tuple[str, tuple[ConditionNow, ...]]:
    if not intent.drivers_by_resource:
        told = "the ClusterPolicy decides about drivers, unless its driver.useNvidiaDriverCRD is true"
        return "disabled", _error("Disabled", told)
    if driver.problems:
        return "notReady", _error("InvalidSpec", "; ".join(map(str, driver.problems)))
    if conflict := seen.conflicts.get(driver.name):
        return "notReady", _error("ConflictingNodeSelector", conflict)
    if stuck := _stuck(driver.uid, seen):
        return "notReady", stuck
    instead = _beside(driver.uid, seen)
    if waiting := _waiting(driver.name, seen, summaries):
        return "notReady", _error("DriverNotReady", "; ".join([*waiting, *instead]))
    if driver.uid in seen.held:
        return "notReady", _error("DeletionHeld", "; ".join(instead))
    labels = driver.spec.labels if driver.spec else None
    return "ready", _ready("Reconciled", "; ".join([*_unheard("spec.labels", labels), *instead]))


def _unheard(path: str, labels: Mapping[str, str] | None) -> list[str]:
    """Labels of a spec that have no effect."""
    keys = sorted({*FOUND_BY, MANAGED_BY} & (labels or {}).keys())
    told = (
        f"{path}: {', '.join(keys)}: these labels have no effect: the operator finds its DaemonSets by them"
    )
    return [told] if keys else []


def _stuck(uid: str, seen: _Seen) -> tuple[ConditionNow, ...]:
    """The condition of a resource whose objects the server rejects, or whose pools stay as they are.

    Both are told. The reason is what the server does: those of pools are in `status.pools`, too.
    """
    reason, words = _held(seen.pools.get(uid, ()))
    if rejected := seen.rejected.get(uid):
        return _error("ReconcileFailed", "; ".join(filter(None, (rejected, words))))
    return _error(reason, words) if reason else ()


def _held(pools: Sequence[Pool]) -> tuple[str, str]:
    """Why pools stay as they are: the first reason, with all its words; '' where none does."""
    told = [one for one in pools if one.reason and one.message]
    if not told:
        return "", ""
    reason = told[0].reason
    words = [f"{one.key.os.tag}: {one.message}" for one in told if one.reason == reason]
    return reason, "; ".join(words)


def _beside(uid: str, seen: _Seen) -> list[str]:
    """What is told beside what a resource waits for."""
    return [*filter(None, (seen.held.get(uid),)), *_instead(seen.pools.get(uid, ()))]


def _instead(pools: Sequence[Pool]) -> list[str]:
    """What is told of pools that compile because an image is missing; not of all, where they are many."""
    told = [f"{one.key.os.tag}: {one.instead}" for one in pools if one.instead]
    left = more(told)
    noun = "pool" if left == "1 more" else "pools"
    return [*told[:EXAMPLES], *([f"and {left} {noun}"] if left else [])]


def _waiting(owner: str, seen: _Seen, summaries: Sequence[PoolSummary]) -> list[str]:
    """What is not ready: nodes that nothing can be done for, and DaemonSets."""
    return [told for told in (*seen.left_out.get(owner, ()), *map(_waits_for, summaries)) if told]


def _summary(pool: Pool, objects: Mapping[Ref, Document]) -> PoolSummary:
    """A pool as a status shows it."""
    ref = Ref(api_version="apps/v1", kind="DaemonSet", namespace=pool.driver.namespace, name=pool.driver.name)
    workload = objects.get(ref)
    found: Mapping[str, Any] = workload.get("status", {}) if workload else {}
    generation = workload["metadata"].get("generation", 1) if workload else 1
    desired = found.get("desiredNumberScheduled", 0)
    # a generation is the API server's: one that was not applied yet has none
    seen = found.get("observedGeneration", 0) >= generation
    return PoolSummary(
        name=pool.driver.name,
        os=pool.key.os.tag,
        arch=pool.key.arch,
        kernel=pool.key.kernel,
        image=_image(workload) if pool.reason else pool.driver.image,
        desired=desired,
        ready=found.get("numberAvailable", 0),
        upToDate=found.get("updatedNumberScheduled", 0) if seen else 0,
        reason=pool.reason if pool.message else "" if seen else "NotRolledOut",
        message=_cut(pool.message or pool.instead),
    )


def _image(workload: Document | None) -> str:
    """What a pool runs whose objects stay as they are."""
    containers = workload["spec"]["template"]["spec"]["containers"] if workload else ()
    return next((one["image"] for one in containers if one["name"] == DRIVER), "")


def _waits_for(pool: PoolSummary) -> str:
    name, desired = pool["name"], pool["desired"]
    if pool["reason"]:
        return f"{name} is not rolled out yet"
    ready = min(pool["ready"], pool["upToDate"])
    if ready == desired:
        return ""
    # a driver is exchanged when its pod is deleted, and until then the old one works
    old = pool["ready"] - ready
    return f"{name}: {ready} of {desired} driver pods are ready{f', and {old} of the old driver' * bool(old)}"


def _ready(reason: str, message: str = "") -> tuple[ConditionNow, ...]:
    return (
        ConditionNow(type="Ready", status="True", reason=reason, message=_cut(message)),
        ConditionNow(type="Error", status="False", reason=reason, message=""),
    )


def _error(reason: str, message: str) -> tuple[ConditionNow, ...]:
    return (
        ConditionNow(type="Ready", status="False", reason=reason, message=""),
        ConditionNow(type="Error", status="True", reason=reason, message=_cut(message)),
    )


def _cut(message: str) -> str:
    """A message that the API server takes: of its sentences those that fit, so that no command is half."""
    if len(message) <= LONGEST_MESSAGE:
        return message
    whole, parted, _ = message[: LONGEST_MESSAGE - 1].rpartition("; ")
    return f"{whole}{parted}…" if parted else f"{message[: LONGEST_MESSAGE - 1]}…"
