"""What the reading commands see of nodes, pods, DaemonSets and events: more fields than a plan needs.

Nothing here is watched, so no operator that runs pays for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from driverforge_core import nodekeys
from driverforge_operator.ports import kind_at
from driverforge_operator.state.kinds import Metadata, NodeInfo, Taint


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Who made an object."""

    kind: str
    name: str


class OwnedMetadata(Metadata, frozen=True, kw_only=True, rename="camel"):
    """Metadata of what a controller makes."""

    owner_references: list[Owner] = msgspec.field(default_factory=list)
    deletion_timestamp: str | None = None

    @property
    def owner(self) -> Owner | None:
        return self.owner_references[0] if self.owner_references else None


class ConditionWords(msgspec.Struct, frozen=True, kw_only=True):
    """One condition, with its words."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class TaintedSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What of a node's spec keeps pods away."""

    unschedulable: bool = False
    taints: list[Taint] = []


class MachineStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a kubelet says."""

    node_info: NodeInfo = NodeInfo()
    conditions: list[ConditionWords] = []
    capacity: dict[str, str | int] = {}
    allocatable: dict[str, str | int] = {}


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A node with all that can hold it back."""

    metadata: Metadata
    spec: TaintedSpec = TaintedSpec()
    status: MachineStatus = MachineStatus()

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels

    @property
    def gpu(self) -> bool:
        """Whether Node Feature Discovery saw a device of NVIDIA's, or the operator said so."""
        keys = (*nodekeys.GPU_FEATURES, nodekeys.GPU_PRESENT)
        return any(self.labels.get(key) == "true" for key in keys)


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A container that does not run yet."""

    reason: str = ""
    message: str = ""


class Running(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A container that runs."""

    started_at: str | None = None


class Terminated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A container that ended."""

    started_at: str | None = None
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True, kw_only=True):
    """At most one is there."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None

    @property
    def started_at(self) -> str:
        """When the container began; '' for one that waits."""
        one = self.running or self.terminated
        return (one.started_at if one else None) or ""


class ContainerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a kubelet says of one container."""

    name: str
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """A variable of a container's environment; '' where its value is taken from elsewhere."""

    name: str
    value: str = ""


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """A container of a pod's spec."""

    name: str
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[Variable] = []


class PodToleration(msgspec.Struct, frozen=True, kw_only=True):
    """A taint that a pod stands; no key is every key."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def stands(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class WorkloadSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is used of a pod's spec."""

    node_name: str = ""
    node_selector: dict[str, str] = {}
    tolerations: list[PodToleration] = []
    init_containers: list[Container] = []
    containers: list[Container] = []
    affinity: dict[str, Any] = {}

    @property
    def component(self) -> str:
        """The component whose switch a node must have: 'driver', '' for a pod that is no operand."""
        keys = (key for key in self.node_selector if key.startswith(nodekeys.DEPLOY))
        return next(keys, "").removeprefix(nodekeys.DEPLOY)


class PodStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is used of a pod's status."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[ConditionWords] = []
    init_container_statuses: list[ContainerStatus] = []
    container_statuses: list[ContainerStatus] = []

    @property
    def last_start(self) -> str:
        """When the newest of its containers began; '' where none did."""
        known = (*self.init_container_statuses, *self.container_statuses)
        return max((one.state.started_at for one in known), default="")


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as it is decoded."""

    metadata: OwnedMetadata
    spec: WorkloadSpec = WorkloadSpec()
    status: PodStatus = PodStatus()

    @property
    def node(self) -> str:
        """Where it runs, or where alone it may: a DaemonSet's pod that no scheduler has placed."""
        if self.spec.node_name:
            return self.spec.node_name
        required = (self.spec.affinity.get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
        fields = [
            field
            for term in (required or {}).get("nodeSelectorTerms", ())
            for field in term.get("matchFields", ())
        ]
        return next((field["values"][0] for field in fields if field.get("key") == "metadata.name"), "")

    @property
    def ready(self) -> bool:
        return any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)


class PodTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that a DaemonSet makes."""

    spec: WorkloadSpec = WorkloadSpec()


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """How pods follow a change of their DaemonSet."""

    type: str = "RollingUpdate"


class DaemonSetSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is used of a DaemonSet's spec."""

    template: PodTemplate = PodTemplate()
    update_strategy: Strategy = Strategy()


class DeploymentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is used of a Deployment's spec."""

    template: PodTemplate = PodTemplate()


# what the DaemonSet controller lets every pod of a DaemonSet stand
_ALWAYS_TOLERATED = {
    f"node.kubernetes.io/{one}"
    for one in (
        "disk-pressure",
        "memory-pressure",
        "not-ready",
        "pid-pressure",
        "unreachable",
        "unschedulable",
    )
}


class DaemonSet(msgspec.Struct, frozen=True, kw_only=True):
    """A DaemonSet as it is decoded."""

    metadata: OwnedMetadata
    spec: DaemonSetSpec = DaemonSetSpec()

    def selects(self, labels: Mapping[str, str]) -> bool:
        return self.spec.template.spec.node_selector.items() <= labels.items()

    def untolerated(self, taints: Iterable[Taint]) -> list[Taint]:
        """Those that keep its pods off a node."""
        tolerations = self.spec.template.spec.tolerations
        return [
            taint
            for taint in taints
            if taint.effect in ("NoSchedule", "NoExecute")
            and taint.key not in _ALWAYS_TOLERATED
            and not any(one.stands(taint) for one in tolerations)
        ]


class Concerned(msgspec.Struct, frozen=True, kw_only=True):
    """The object of an event."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


class Warned(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An event of the cluster; a watch's changes are `ports.Event`."""

    metadata: Metadata
    involved_object: Concerned = Concerned()
    type: str = ""
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def when(self) -> str:
        return self.last_timestamp or self.event_time or self.metadata.creation_timestamp or ""


class WorkloadStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is used of a Deployment's status."""

    available_replicas: int = 0


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """A Deployment as it is decoded: an operator, perhaps."""

    metadata: Metadata
    spec: DeploymentSpec = DeploymentSpec()
    status: WorkloadStatus = WorkloadStatus()


MACHINE = kind_at("v1", "Node", "nodes", Machine, namespaced=False)
POD = kind_at("v1", "Pod", "pods", Pod)
EVENT = kind_at("v1", "Event", "events", Warned)
DAEMON_SET = kind_at("apps/v1", "DaemonSet", "daemonsets", DaemonSet)
DEPLOYMENT = kind_at("apps/v1", "Deployment", "deployments", Deployment)
NAMESPACE = kind_at("v1", "Namespace", "namespaces", dict[str, Any], namespaced=False)
RUNTIME_CLASS = kind_at("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", dict[str, Any], namespaced=False)
