"""What the operator itself says is wrong with the custom resource that is responsible for a node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driverforge_core import nodekeys
from driverforge_operator.explain.finding import Finding
from driverforge_operator.explain.scene import DRIVERS, Scene
from driverforge_operator.operands.table import OPERANDS
from driverforge_operator.state.kinds import CustomResource
from driverforge_operator.state.nodes import system_of

_WAITS = ("DriverNotReady", "OperandNotReady", "DeletionHeld")
"""Reasons with which nothing is held back: pods that are there are waited for, or left-over objects stay."""
_OF_POOLS = ("ImageMissing", "ConfigurationMissing")
"""Reasons that are some pools' alone."""
_REJECTED = "ReconcileFailed"
Pool = Mapping[str, Any]
"""A line of `status.pools`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """An error condition of a custom resource, and the pools that its status shows."""

    kind: str
    resource: str
    reason: str
    message: str
    pools: Sequence[Pool] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.resource}: {self.reason}: {self.message}"

    @property
    def held(self) -> list[Pool]:
        """The pools whose objects stay as they are."""
        return [one for one in self.pools if one.get("reason") not in (None, "", "NotRolledOut")]

    @property
    def statements(self) -> list[str]:
        """What the message says, thing by thing, beside what the pools say themselves."""
        rest = f"; {self.message}"
        # as plan/crstatus.py repeats them in a condition
        for one in self.pools:
            rest = rest.replace(f"; {one['os']}: {one.get('message')}", "")
        return [one for one in _BETWEEN.split(rest) if one]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What a complaint says of one node's component."""

    complaint: Complaint
    reason: str
    words: str

    @property
    def cause(self) -> str:
        """The reason as causes are named: 'image-missing'."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", self.reason).lower()


def complaints(scene: Scene, component: str = "") -> list[Complaint]:
    """About what is to bring a component to this node, or about what is to label it ('')."""
    return [
        Complaint(
            kind=kind,
            resource=resource.metadata.name,
            reason=str(one.get("reason", "")),
            message=str(one.get("message", "")),
            pools=resource.status.get("pools") or (),
        )
        for kind, resource in _responsible(scene, component)
        for one in resource.true_conditions
        if one.get("type") == "Error"
    ]


def answered(scene: Scene, component: str, what: str) -> Finding | None:
    """Why there is no DaemonSet of a component at all, in the operator's words."""
    return _finding(scene, component, what)


def held_back(scene: Scene, component: str, what: str) -> Finding | None:
    """Why this node's DaemonSet is not among those that there are, where the operator says it."""
    return _finding(scene, component, what, leaving_out=_WAITS)


def _finding(scene: Scene, component: str, what: str, *, leaving_out: Sequence[str] = ()) -> Finding | None:
    """The first answer; None where what is wrong concerns other nodes and operands only."""
    said = complaints(scene, component)
    answers = (_answer(one, scene, component) for one in said if one.reason not in leaving_out)
    found = next(filter(None, answers), None)
    if found is None:
        return None
    kind, resource = found.complaint.kind, found.complaint.resource
    build = _BUILD.search(found.words) if found.reason in _OF_POOLS else None
    return Finding(
        what=what,
        evidence=tuple(map(str, said)),
        cause=found.cause,
        # of several commands either is enough, and the words say so
        told=f"the operator says of {kind} {resource}: {_BUILD.sub('', found.words, count=1)}",
        command=build[1] if build else f"kubectl describe {kind.lower()} {resource}",
    )


def _answer(said: Complaint, scene: Scene, component: str) -> _Answer | None:
    """The node's own pool first: what is rejected beside it is tried again, and an image has to be made."""
    if component in DRIVERS and (pool := _own(said.held, scene)):
        told = pool.get("message") or f"pool {pool['name']}: {pool['reason']}"
        return _Answer(complaint=said, reason=str(pool["reason"]), words=str(told))
    if rejected := "; ".join(_rejected(said, scene, component)):
        return _Answer(complaint=said, reason=_REJECTED, words=rejected)
    others = [one for one in said.statements if not _FAILED.match(one)]
    if said.reason in _OF_POOLS or not others:
        return None
    return _Answer(complaint=said, reason=said.reason, words="; ".join(others))


def _responsible(scene: Scene, component: str) -> list[tuple[str, CustomResource]]:
    """The resources that decide, each with its kind. One that is ignored or disabled decides nothing."""
    sight = scene.sight
    if component in DRIVERS and sight.drivers_by_resource:
        return [("NVIDIADriver", one) for one in _claiming(scene)]
    if sight.policy:
        return [("ClusterPolicy", sight.policy)]
    # what is wrong with the labels of nodes is told in each then
    return [("NVIDIADriver", one) for one in sight.drivers.values()]


def _claiming(scene: Scene) -> list[CustomResource]:
    """The NVIDIADrivers that claim the node: that which has it, those that select it, or the default ones."""
    sight = scene.sight
    if owner := sight.drivers.get(scene.labels.get(nodekeys.DRIVER_OWNER, "")):
        return [owner]
    return [sight.drivers[name] for name in sight.claimants.of(scene.labels)]


# as the plan tells of what the API server rejects (plan/rejected.py), and as NVIDIA's operator does
_FAILED = re.compile(r"Failed to reconcile (?P<part>[^:]+): (?P<objects>[^:]*)")
_BETWEEN = re.compile(r"; (?=Failed to reconcile )|^; ")
# as plan/pools.py ends what it tells of a missing image
_BUILD = re.compile(r":? ?(driverforge build --select '[^']+'(?: --registry \S+ --push)?)")


def _own(pools: Sequence[Pool], scene: Scene) -> Pool | None:
    """The node's own pool among some."""
    info = scene.node.status.node_info
    kernel = scene.labels.get(nodekeys.KERNEL) or info.kernel_version
    # the minor version of what images drop it for is not the pool's
    system = system_of(scene.labels)
    wanted = (system.tag if system else "", info.architecture)
    of_its_kind = (one for one in pools if (one.get("os"), one.get("arch", "")) == wanted)
    # a driver that is compiled on the node is there for all kernels
    return next((one for one in of_its_kind if one.get("kernel", "") in ("", kernel)), None)


def _rejected(said: Complaint, scene: Scene, component: str) -> Iterator[str]:
    """What a message says of objects of a component, and of the node, that the API server does not take."""
    parts = {one.state for one in OPERANDS if one.switch == component}
    parts |= {"state-driver"} if component in DRIVERS else set()
    node = f"Node {scene.node.metadata.name}"
    for one in said.statements:
        if (found := _FAILED.match(one)) and (
            found["part"] in parts or node in found["objects"].split(" and ")
        ):
            yield one
