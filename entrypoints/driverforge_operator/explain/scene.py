"""What is known of a cluster, and of one node in it, when somebody asks why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from driverforge_core import nodekeys
from driverforge_operator.operands.table import OPERANDS
from driverforge_operator.ports import Kind, Log
from driverforge_operator.state.claims import Claimants
from driverforge_operator.state.kinds import CLUSTER_POLICY, NVIDIA_DRIVER, CustomResource, by_age
from driverforge_operator.state.workloads import DaemonSet, Machine, Pod, Warned

DRIVERS = ("driver", "vgpu-manager")
"""The components that NVIDIADriver resources bring."""
_NO_SANDBOX = "FailedCreatePodSandBox"


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What could be read. `pods` are operands and what else was looked at, of all namespaces.

    `daemonsets` of our namespace come first. `unread` says what the user may not see; `hidden` has the
    plurals of kinds of which not all may be seen, so that nobody knows that there is none; `undumped` those
    of kinds that a dump has nothing of. `logs` has the last lines of some containers.
    """

    namespace: str
    nodes: Mapping[str, Machine]
    pods: Sequence[Pod]
    daemonsets: Sequence[DaemonSet]
    warnings: Sequence[Warned]
    policies: Mapping[str, CustomResource]
    drivers: Mapping[str, CustomResource]
    unread: tuple[str, ...] = ()
    hidden: frozenset[str] = frozenset()
    undumped: frozenset[str] = frozenset()
    logs: Mapping[Log, tuple[str, ...]] = field(default_factory=dict)

    def hides(self, *kinds: Kind[Any]) -> bool:
        """Whether the user may not see all objects of one of these kinds, or the dump has none."""
        return any(kind.plural in self.hidden for kind in kinds) or self.lacks(*kinds)

    def lacks(self, *kinds: Kind[Any]) -> bool:
        """Whether one of these kinds is not in the dump."""
        return any(kind.plural in self.undumped for kind in kinds)

    @cached_property
    def pods_by_node(self) -> Mapping[str, Sequence[Pod]]:
        found: dict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods:
            found[pod.node].append(pod)
        return found

    @cached_property
    def warnings_by_object(self) -> Mapping[tuple[str, str, str], Sequence[Warned]]:
        """By kind, namespace and name; the oldest first."""
        found: dict[tuple[str, str, str], list[Warned]] = defaultdict(list)
        for one in sorted(self.warnings, key=lambda one: one.when):
            about = one.involved_object
            found[about.kind, about.namespace, about.name].append(one)
        return found

    @cached_property
    def policy(self) -> CustomResource | None:
        """The ClusterPolicy that counts: the oldest."""
        return next(iter(by_age(self.policies.values())), None)

    @property
    def resources(self) -> Sequence[tuple[str, CustomResource]]:
        """All custom resources, each with its kind."""
        return [
            *(("ClusterPolicy", one) for one in self.policies.values()),
            *(("NVIDIADriver", one) for one in self.drivers.values()),
        ]

    @cached_property
    def claimants(self) -> Claimants:
        """The NVIDIADrivers by what they select, valid or not: what is wrong with one is for its nodes.

        Nobody knows the nodes of a selector that cannot be read. It counts where no other selects, and no
        resource is the default.
        """
        defaults = {name for name, one in self.drivers.items() if one.spec.get("default") is True}
        selectors = {
            name: _selector(one.spec.get("nodeSelector"))
            for name, one in self.drivers.items()
            if name not in defaults
        }
        unread = (name for name, found in selectors.items() if found is None)
        read = {name: found for name, found in selectors.items() if found is not None}
        return Claimants(read, defaults or unread)

    @property
    def find_operator(self) -> str:
        """The command that shows whether an operator runs."""
        return f"kubectl get pods -n {self.namespace}; driverforge-operator doctor"

    def asked_for(self, component: str) -> bool:
        """Whether a custom resource wants a component; an NVIDIADriver alone wants the driver only.

        It has no switch of its own, and wants nothing where the ClusterPolicy decides about drivers.
        """
        if component == "driver" and self.drivers and self.drivers_by_resource:
            return True
        if self.policy is None:
            return False
        fields = (one.field for one in OPERANDS if one.switch == component and one.field)
        settings = self.policy.spec.get(next(fields, component)) or {}
        return not (isinstance(settings, dict) and settings.get("enabled") is False)

    def hides_what_asks_for(self, component: str) -> bool:
        """Whether the user may not see all custom resources that may want a component."""
        if self.hides(CLUSTER_POLICY):
            return True
        return component == "driver" and self.drivers_by_resource and self.hides(NVIDIA_DRIVER)

    @property
    def drivers_by_resource(self) -> bool:
        """Whether NVIDIADriver resources decide about drivers, rather than the ClusterPolicy."""
        driver = self.policy.spec.get("driver") if self.policy else {"useNvidiaDriverCRD": True}
        return isinstance(driver, dict) and driver.get("useNvidiaDriverCRD") is True


def _selector(found: Any) -> dict[str, str] | None:
    """A selector as it was written; None where it is none."""
    if not found:
        return {}
    if not isinstance(found, dict):
        return None
    texts = all(isinstance(one, str) for pair in found.items() for one in pair)
    return found if texts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One node."""

    node: Machine
    sight: Sight

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node.labels

    @property
    def pods(self) -> Sequence[Pod]:
        return self.sight.pods_by_node.get(self.node.metadata.name, ())

    def asked_for(self, component: str) -> bool:
        """Whether a component is wanted here. Where nobody may read what asks, the node's switch says so."""
        if self.sight.asked_for(component):
            return True
        switched_on = self.labels.get(nodekeys.DEPLOY + component) == "true"
        return switched_on and self.sight.hides_what_asks_for(component)

    def operands(self, component: str) -> list[Pod]:
        """Pods of a component that are there and stay, the newest last."""
        found = [pod for pod in self._of(component) if pod.metadata.deletion_timestamp is None]
        return sorted(found, key=lambda pod: pod.metadata.creation_timestamp or "")

    def leaving(self, component: str) -> list[Pod]:
        """Pods of a component that were deleted, and are still there."""
        return [pod for pod in self._of(component) if pod.metadata.deletion_timestamp is not None]

    def _of(self, component: str) -> Iterator[Pod]:
        """Pods of a component. One that asks for further labels is another operand with its switch (MPS)."""
        for pod in self.pods:
            if pod.spec.component == component and "nvidia.com/mps.capable" not in pod.spec.node_selector:
                yield pod

    def own(self, daemonsets: Iterable[DaemonSet]) -> DaemonSet | None:
        """Which of these serves the node: of several that select it that of its pod, then the first."""

        def rank(one: DaemonSet) -> tuple[bool, bool]:
            name, namespace = one.metadata.name, one.metadata.namespace
            pods = [
                pod.metadata
                for pod in self.operands(one.spec.template.spec.component)
                if pod.metadata.namespace == namespace
            ]
            owned = any(pod.owner is not None and pod.owner.name == name for pod in pods)
            return not owned, not pods

        return min((one for one in daemonsets if one.selects(self.labels)), key=rank, default=None)

    def warnings(self, kind: str, namespace: str, name: str) -> list[str]:
        """What was said of an object, each thing once."""
        return _once(self._warned(kind, namespace, name))

    def pod_warnings(self, pod: Pod) -> list[str]:
        """What was said of a pod and still holds: once a container runs, its sandbox could be made."""
        found = self._warned("Pod", pod.metadata.namespace, pod.metadata.name)
        begun = pod.status.last_start
        return _once(one for one in found if one.reason != _NO_SANDBOX or not begun or one.when > begun)

    def _warned(self, kind: str, namespace: str, name: str) -> Sequence[Warned]:
        return self.sight.warnings_by_object.get((kind, namespace, name), ())


def _once(found: Iterable[Warned]) -> list[str]:
    return list(dict.fromkeys(f"{one.reason}: {one.message}" for one in found))
