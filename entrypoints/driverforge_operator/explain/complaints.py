"""What the operator itself says is wrong with the custom resource that is responsible for a node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from driverforge_core import nodekeys
from driverforge_core.errors import InputError
from driverforge_core.osid import OsId
from driverforge_operator.explain.finding import Finding
from driverforge_operator.explain.scene import DRIVERS, Scene
from driverforge_operator.state.kinds import CustomResource

_WAITS = ("DriverNotReady", "OperandNotReady")
"""Reasons with which nothing is held back: pods that are there are waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """An error condition of a custom resource."""

    kind: str
    resource: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind} {self.resource}: {self.reason}: {self.message}"

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
        )
        for kind, resource in _responsible(scene, component)
        for one in resource.true_conditions
        if one.get("type") == "Error"
    ]


def answered(scene: Scene, component: str, what: str) -> Finding | None:
    """Why there is no DaemonSet of a component at all, in the operator's words."""
    said = complaints(scene, component)
    if not said:
        return None
    return _finding(scene, what, said, _of_node(said[0].message, scene) or said[0].message)


def held_back(scene: Scene, component: str, what: str) -> Finding | None:
    """Why this node's DaemonSet is not among those that there are, where the operator says it."""
    said = complaints(scene, component)
    if not said or said[0].reason in _WAITS:
        return None
    words = _of_node(said[0].message, scene)
    return _finding(scene, what, said, words) if words else None


def _finding(scene: Scene, what: str, said: Sequence[Complaint], words: str) -> Finding:
    first = said[0]
    builds = _BUILD.findall(words)
    return Finding(
        what=what,
        evidence=tuple(map(str, said)),
        cause=first.cause,
        told=f"the operator says of {first.kind} {first.resource}: {_BUILD.sub('', words)}",
        command=_nearest(builds, scene)
        if builds
        else f"kubectl describe {first.kind.lower()} {first.resource}",
    )


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
    drivers = scene.sight.drivers
    if owner := drivers.get(scene.labels.get(nodekeys.DRIVER_OWNER, "")):
        return [owner]
    defaults = [one for one in drivers.values() if one.spec.get("default") is True]
    selecting = [
        one
        for one in drivers.values()
        if one not in defaults and (one.spec.get("nodeSelector") or {}).items() <= scene.labels.items()
    ]
    return selecting or defaults


# as the plan tells of pools whose objects stay as they are: the system, and what is wrong (plan/status.py)
_POOL = re.compile(r"(?P<system>[a-z][a-z_-]*\d[\d.]*): ")
_BETWEEN = re.compile(rf"; (?={_POOL.pattern.replace('?P<system>', '?:')})")
# as plan/pools.py ends what it tells of a missing image
_BUILD = re.compile(r":? ?(driverforge build --select '[^']+'(?: --registry \S+ --push)?)")


def _of_node(message: str, scene: Scene) -> str:
    """What a message tells of the node's own pool; all of one that is not about pools, '' where none is."""
    if not _POOL.match(message):
        return message
    system = _system(scene)
    own = [
        found.string[found.end() :]
        for one in _BETWEEN.split(message)
        if (found := _POOL.match(one)) and found["system"] == system
    ]
    return _nearest(own, scene) if own else ""


def _nearest(texts: Sequence[str], scene: Scene) -> str:
    """The text that names the node's kernel, else its architecture, else the first."""
    info = scene.node.status.node_info
    return max(texts, key=lambda one: (info.kernel_version in one, info.architecture in one))


def _system(scene: Scene) -> str:
    """The node's system as the tags of images name it; '' where Node Feature Discovery does not say."""
    labels = scene.labels
    try:
        return OsId(id=labels.get(nodekeys.OS_ID, ""), version=labels.get(nodekeys.OS_VERSION, "")).tag
    except InputError:
        return ""
