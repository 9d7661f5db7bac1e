"""The labels and annotations of one node.

A value that somebody set stays: 'false' is an administrator's, 'paused-…' a program's of the node.

The ready taint: no pod comes to a node before its GPUs were validated, once after each boot.

The node keeps, as an annotation, in which boot it was validated, and since when the validator's pod was ready
then. After a boot the kubelet repeats for a while what its pods were before: a time that is known already
says nothing of this boot. No clock is compared with another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from driverforge_core import nodekeys
from driverforge_operator.crd.clusterpolicy import ClusterPolicySpec, SandboxWorkloads
from driverforge_operator.operands.sandbox import default_workload
from driverforge_operator.operands.setting import CRIO, DOCKER
from driverforge_operator.operands.table import OPERANDS, OTHER_SWITCHES, Operand, Workload
from driverforge_operator.plan.actions import PatchNode
from driverforge_operator.plan.intent import Intent
from driverforge_operator.plan.placement import Placement
from driverforge_operator.state.nodes import Node

_VALIDATOR, _MIG_MANAGER = "operator-validator", "mig-manager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """`switches` are components whose switch is set where it is not; `allowed` those that stay where one is.

    All others of operators are taken away. Other programs have switches of their own.
    """

    values: Mapping[str, str | None]
    switches: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()


def label(
    node: Node,
    placement: Placement,
    intent: Intent,
    ready_since: str = "",
    operands: Sequence[Operand] = OPERANDS,
) -> PatchNode | None:
    """What has to change on a node, None for nothing.

    `ready_since` is when the validator's pod of the node became ready, '' while it is not.
    """
    wanted = _wanted(node, placement, intent, operands)
    labels = {key: value for key, value in wanted.values.items() if node.labels.get(key) != value}
    for switch in wanted.switches:
        # an empty value is as good as none
        if not node.labels.get(nodekeys.DEPLOY + switch):
            labels[nodekeys.DEPLOY + switch] = "true"
    of_operators = {*OTHER_SWITCHES, *(one.switch for one in operands if one.switch)}
    for switch in of_operators - wanted.allowed:
        if nodekeys.DEPLOY + switch in node.labels:
            labels[nodekeys.DEPLOY + switch] = None
    # nobody takes the taint off where no validator runs
    validated = _VALIDATOR in wanted.switches and node.labels.get(f"{nodekeys.DEPLOY}{_VALIDATOR}") != "false"
    ready = readiness(node, wanted=intent.ready_taint and validated, ready_since=ready_since)
    # a kubelet registers with the taint before anybody can know whether its node has a GPU
    if intent.ready_taint and not placement.labelled:
        ready = replace(ready, tainted=node.tainted)
    annotations = {
        key: value
        for key, value in (
            (nodekeys.UPGRADE_ENABLED, _upgrade_enabled(placement, intent)),
            (nodekeys.VALIDATED, ready.validated),
        )
        if node.annotations.get(key) != value
    }
    tainted = None if ready.tainted is node.tainted else ready.tainted
    if not labels and not annotations and tainted is None:
        return None
    return PatchNode(node=node.name, labels=labels, annotations=annotations, tainted=tainted)


def _wanted(node: Node, placement: Placement, intent: Intent, operands: Sequence[Operand]) -> Wanted:
    # while several claim it, it stays with the one that it has
    owner = placement.owner or (node.labels.get(nodekeys.DRIVER_OWNER) if placement.claims else None)
    # what most nodes have needs no label
    runtime = placement.runtime if placement.runtime in (CRIO, DOCKER) else None
    values: dict[str, str | None] = {nodekeys.DRIVER_OWNER: owner, nodekeys.RUNTIME: runtime}
    if not placement.gpu:
        # a node that never had a GPU has no label of ours
        values[nodekeys.GPU_PRESENT] = "false" if node.labels.get(nodekeys.GPU_PRESENT) else None
        return Wanted(values=values)
    values[nodekeys.GPU_PRESENT] = "true"
    if node.labels.get(nodekeys.OPERANDS) == "false":
        return Wanted(values=values)
    spec = intent.policy.spec if intent.policy else None
    workload = _workload(node, spec)
    others = frozenset(switch for switch, workloads in OTHER_SWITCHES.items() if workload in workloads)
    ours = [one for one in operands if one.switch and workload in one.workloads]
    switches = others.union(one.switch for one in ours if one.suits(node.labels))
    if _MIG_MANAGER in switches:
        config = spec.mig_manager.config if spec and spec.mig_manager else None
        if not node.labels.get(nodekeys.MIG_CONFIG) and config and config.default:
            values[nodekeys.MIG_CONFIG] = config.default
    return Wanted(values=values, switches=switches, allowed=others.union(one.switch for one in ours))


def unknown_workload(node: Node, placement: Placement, intent: Intent) -> str:
    """What somebody wrote as the workload of a node with GPUs, and is none; '' where all is well."""
    wish = node.labels.get(nodekeys.WORKLOAD, "")
    counts = placement.gpu and _sandbox(intent.policy.spec if intent.policy else None)
    return wish if counts and wish not in nodekeys.WORKLOADS else ""


def unknown_default(intent: Intent) -> str:
    """The same of the ClusterPolicy's sandboxWorkloads.defaultWorkload."""
    sandbox = _sandbox(intent.policy.spec if intent.policy else None)
    wish = sandbox.default_workload if sandbox else ""
    return wish if wish not in nodekeys.WORKLOADS else ""


def _sandbox(spec: ClusterPolicySpec | None) -> SandboxWorkloads | None:
    sandbox = spec.sandbox_workloads if spec else None
    return sandbox if sandbox and sandbox.enabled else None


def _workload(node: Node, spec: ClusterPolicySpec | None) -> Workload:
    sandbox = _sandbox(spec)
    if sandbox is None:
        return Workload.CONTAINER
    wish = node.labels.get(nodekeys.WORKLOAD, "")
    match wish if wish in nodekeys.WORKLOADS else default_workload(sandbox):
        case nodekeys.VM_PASSTHROUGH:
            return Workload(sandbox.mode)
        case nodekeys.VM_VGPU:
            return Workload.VGPU
        case _:
            return Workload.CONTAINER


def _upgrade_enabled(placement: Placement, intent: Intent) -> str | None:
    """Whether somebody evicts a node's pods before its driver pod goes; driver managers read it."""
    if not placement.gpu:
        return None
    if intent.drivers_by_resource:
        owner = intent.driver.get(placement.owner)
        if owner is None or owner.spec is None:
            return None
        own = owner.spec.upgrade_policy
        return "true" if own is None or own.auto_upgrade else None
    spec = intent.policy.spec if intent.policy else None
    if spec is None or spec.driver.enabled is False:
        return None
    sandbox = spec.sandbox_workloads is not None and spec.sandbox_workloads.enabled
    policy = spec.driver.upgrade_policy
    return "true" if policy and policy.auto_upgrade and not sandbox else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What shall be on a node; `validated` is the annotation, None for none."""

    tainted: bool
    validated: str | None


def readiness(node: Node, *, wanted: bool, ready_since: str) -> Readiness:
    """`wanted`: the node is to be validated.

    `ready_since` is when its validator's pod became ready, '' while it is not.
    """
    if not wanted:
        return Readiness(tainted=False, validated=None)
    known = node.annotations.get(nodekeys.VALIDATED)
    boot, _, since = (known or "").partition(" ")
    if known and boot == node.boot:
        return Readiness(tainted=False, validated=known)
    if ready_since and ready_since != since:
        return Readiness(tainted=False, validated=f"{node.boot} {ready_since}")
    return Readiness(tainted=True, validated=known)
