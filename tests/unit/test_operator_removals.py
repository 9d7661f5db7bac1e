"""What nobody wants goes only where nobody says that something was not seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from driverforge_core.errors import TemporaryFailure
from driverforge_operator.app.owners import Owners
from driverforge_operator.app.store import Store
from driverforge_operator.plan.actions import Action, Apply, Delete, PatchNode, SetStatus
from driverforge_operator.plan.whole import plan
from driverforge_operator.ports import Document, Gone, Kind, Ref
from driverforge_operator.state.kinds import (
    CLUSTER_POLICY,
    KIND_OF,
    NVIDIA_DRIVER,
    CustomResource,
    Metadata,
    NodeDocument,
)
from driverforge_operator.state.nodes import Node
from driverforge_operator.state.observed import State
from driverforge_operator.state.surroundings import OpenShiftCluster
from support.cluster.operator import node_labels
from support.samples.operatorcases import driver_state, policy_spec

KERNEL = "6.8.0-45-generic"
SYSTEMS = (("ubuntu", "22.04"), ("ubuntu", "24.04"), ("rocky", "9.5"))


def node(name: str, system: tuple[str, str], kernel: str = KERNEL) -> Node:
    labels = node_labels(os_id=system[0], version=system[1], kernel=kernel)
    found = {"metadata": {"name": name, "labels": labels}, "status": {"nodeInfo": {"architecture": "amd64"}}}
    return Node.of(msgspec.convert(found, NodeDocument))


def resource(spec: dict[str, Any], *, name: str = "cluster-policy", generation: int = 1) -> CustomResource:
    """One that was decided on as it was created."""
    metadata = Metadata(name=name, uid=f"uid-{name}", generation=generation)
    return CustomResource(metadata=metadata, spec=spec, status={"observedGeneration": 1})


def policy(generation: int = 1, **changes: Any) -> CustomResource:
    spec = policy_spec("default")
    for field, values in changes.items():
        spec[field] = {**spec[field], **values}
    return resource(spec, generation=generation)


def driver() -> CustomResource:
    spec = next(iter(driver_state("minimal").drivers.values())).spec
    return resource({**spec, "default": True, "nodeSelector": {}}, name="fleet")


def state(*, openshift: bool = False, of: CustomResource | None = None) -> State:
    """Five nodes of three systems with all that a resource asks for, on each of which its pods run."""
    nodes = [node(f"n{number}", SYSTEMS[min(number, 2)]) for number in range(5)]
    of = of or policy()
    by_policy = of.metadata.name == "cluster-policy"
    empty = State(
        namespace="gpu-operator",
        nodes={one.name: one for one in nodes},
        policies={of.metadata.name: of} if by_policy else {},
        drivers={} if by_policy else {of.metadata.name: of},
        objects={},
    )
    if openshift:
        around = replace(empty.around, openshift=OpenShiftCluster(version="4.17"))
        empty = replace(empty, around=around)
    return settled(empty)


def settled(found: State) -> State:
    """After a round, and after the DaemonSet controller's."""
    actions = plan(found)
    nodes = dict(found.nodes)
    for action in actions:
        if isinstance(action, PatchNode):
            labels = {**nodes[action.node].labels, **action.labels}
            labels = {key: value for key, value in labels.items() if value is not None}
            nodes[action.node] = replace(nodes[action.node], labels=labels)
    objects = {
        **found.objects,
        **{one.ref: counted(one.document, nodes.values()) for one in actions if isinstance(one, Apply)},
    }
    return replace(found, nodes=nodes, objects=objects)


def counted(document: Document, nodes: Iterable[Node]) -> Document:
    """A DaemonSet with the status that its controller writes."""
    if document["kind"] != "DaemonSet":
        return document
    selector: Mapping[str, str] = document["spec"]["template"]["spec"].get("nodeSelector") or {}
    desired = sum(
        all(
            {**one.labels, "kubernetes.io/arch": one.arch}.get(key) == value
            for key, value in selector.items()
        )
        for one in nodes
    )
    counts = ("desiredNumberScheduled", "numberAvailable", "updatedNumberScheduled")
    return {**document, "status": {**dict.fromkeys(counts, desired), "observedGeneration": 1}}


def recounted(found: State) -> State:
    objects = {ref: counted(one, found.nodes.values()) for ref, one in found.objects.items()}
    return replace(found, objects=objects)


def deleted(actions: Iterable[Action]) -> set[str]:
    return {f"{one.ref.kind} {one.ref.name}" for one in actions if isinstance(one, Delete)}


def told(found: State) -> tuple[str, str]:
    """Reason and words of the only resource's condition, as it is to be written."""
    (status,) = [one for one in plan(found) if isinstance(one, SetStatus)]
    (condition,) = [one for one in status.conditions if one.status == "True"]
    return condition.reason, condition.message


@pytest.mark.parametrize("of", [policy(), driver()], ids=["ClusterPolicy", "NVIDIADriver"])
@pytest.mark.parametrize("seen", range(5))
def test_nodes_that_are_not_listed_take_nothing_along(of: CustomResource, seen: int) -> None:
    whole = state(of=of)
    assert sum(ref.kind == "DaemonSet" for ref in whole.objects) >= 3
    assert deleted(plan(whole)) == set()
    first = dict(list(whole.nodes.items())[:seen])
    last = dict(list(whole.nodes.items())[len(whole.nodes) - seen :])
    for known in (first, last):
        assert deleted(plan(replace(whole, nodes=known))) == set()


@pytest.mark.parametrize("of", [policy(), driver()], ids=["ClusterPolicy", "NVIDIADriver"])
def test_nodes_that_are_gone_take_their_pool_along(of: CustomResource) -> None:
    whole = state(of=of)
    rest = {name: one for name, one in whole.nodes.items() if name != "n0"}
    gone = deleted(plan(recounted(replace(whole, nodes=rest))))
    (workload,) = (one for one in gone if one.startswith("DaemonSet"))
    assert "ubuntu22.04" in workload
    none = deleted(plan(recounted(replace(whole, nodes={}))))
    assert len([one for one in none if one.startswith("DaemonSet")]) == sum(
        ref.kind == "DaemonSet" for ref in whole.objects
    )
    assert "ConfigMap nvidia-driver-startup-probe" not in none


def test_what_all_drivers_share_goes_after_the_last_one() -> None:
    gone = replace(state(), policies={})
    rest = {ref: one for ref, one in gone.objects.items() if ref.kind != "DaemonSet"}
    assert "ConfigMap nvidia-driver-startup-probe" not in deleted(plan(gone))
    assert "ConfigMap nvidia-driver-startup-probe" in deleted(plan(replace(gone, objects=rest)))


def test_drivers_of_another_kind_go_though_their_nodes_are_there() -> None:
    whole = state()
    changed = replace(
        whole, policies={"cluster-policy": policy(driver={"usePrecompiled": True, "version": "580"})}
    )
    gone = [one for one in deleted(plan(changed)) if one.startswith("DaemonSet")]
    assert len(gone) == 3


def test_nodes_that_cannot_be_seen_are_none_that_fit() -> None:
    one = node("a", ("ubuntu", "22.04"))
    assert one.fits({"feature.node.kubernetes.io/system-os_release.ID": "ubuntu"})
    assert one.fits({"kubernetes.io/arch": "amd64", "somebody.example/label": "x"})
    assert not one.fits({"kubernetes.io/arch": "arm64"})
    assert not one.fits({"nvidia.com/gpu.deploy.driver": "true"})


def test_without_openshift_what_was_made_for_it_stays() -> None:
    whole = state(openshift=True)
    assert any(ref.kind == "SecurityContextConstraints" for ref in whole.objects)
    assert deleted(plan(whole)) == set()
    assert deleted(plan(replace(whole, around=replace(whole.around, openshift=None)))) == set()


def left_over(whole: State, *names: str) -> State:
    """With accounts that an older operator made for operands of these names."""
    sample = next(
        one for ref, one in whole.objects.items() if ref.name == "nvidia-dcgm-exporter" and ref.kind == "Role"
    )
    extra = [
        {**sample, "kind": "RoleBinding", "metadata": {**sample["metadata"], "name": f"{name}-docker"}}
        for name in names
    ]
    return replace(whole, objects={**whole.objects, **{Ref.of(one): one for one in extra}})


TWO = ("nvidia-dcgm-exporter", "nvidia-device-plugin")


def test_objects_of_several_states_stay_where_nothing_says_why_they_should_go() -> None:
    whole = left_over(state(), *TWO)
    assert deleted(plan(whole)) == set()
    assert told(whole) == (
        "DeletionHeld",
        (
            "objects of state-dcgm-exporter, state-device-plugin are not wanted any more, and nothing in the "
            "resource says why: they stay until you delete them; kubectl delete -n gpu-operator "
            "rolebindings.rbac.authorization.k8s.io/nvidia-dcgm-exporter-docker "
            "rolebindings.rbac.authorization.k8s.io/nvidia-device-plugin-docker"
        ),
    )


def test_objects_of_one_state_go() -> None:
    whole = left_over(state(), TWO[0])
    assert deleted(plan(whole)) == {f"RoleBinding {TWO[0]}-docker"}


def test_a_change_of_the_resource_says_why_and_is_told_as_read_afterwards() -> None:
    whole = left_over(state(of=policy(generation=2)), *TWO)
    actions = plan(whole)
    assert deleted(actions) == {f"RoleBinding {name}-docker" for name in TWO}
    assert not [one for one in actions if isinstance(one, SetStatus)]
    after = replace(
        whole, objects={ref: one for ref, one in whole.objects.items() if "-docker" not in ref.name}
    )
    assert [one.generation for one in plan(after) if isinstance(one, SetStatus)] == [2]
    # a refusal is told at once
    (ref, *_) = (one.ref for one in actions if isinstance(one, Delete))
    refused = replace(whole, around=replace(whole.around, rejected={ref: "403"}))
    assert told(refused)[0] == "ReconcileFailed"


def test_what_the_resource_switches_off_goes_at_once() -> None:
    off = policy(dcgmExporter={"enabled": False}, devicePlugin={"enabled": False}, driver={"enabled": False})
    gone = deleted(plan(replace(state(), policies={"cluster-policy": off})))
    assert {"DaemonSet nvidia-dcgm-exporter", "DaemonSet nvidia-device-plugin-daemonset"} < gone
    assert {one for one in gone if "nvidia-driver-daemonset" in one}


class OneByOne:
    """A server that answers for single resources alone; `asked` are their names."""

    def __init__(self, *found: CustomResource, down: bool = False) -> None:
        self._found = {one.metadata.name: one for one in found}
        self.down = down
        self.asked: list[str] = []

    def get(self, kind: Kind[Any], name: str) -> Any:
        self.asked.append(name)
        if self.down:
            raise TemporaryFailure("no answer")
        if name not in self._found:
            raise Gone("404")
        return self._found[name]


def stored(whole: State, *, resources: bool = True) -> Store:
    store = Store(whole.namespace)
    for ref, one in whole.objects.items():
        store.put(KIND_OF[ref.api_version, ref.kind], one)
    if resources:
        for ref, found in whole.resources.items():
            store.put(KIND_OF[ref.api_version, ref.kind], found)
    return store


@pytest.mark.parametrize("of", [policy(), driver()], ids=["ClusterPolicy", "NVIDIADriver"])
def test_a_resource_that_no_list_has_is_asked_for_before_what_it_owns_goes(of: CustomResource) -> None:
    store = stored(state(of=of), resources=False)
    server = OneByOne(of)
    assert Owners(server).known(store)  # type: ignore[arg-type]
    assert server.asked == [of.metadata.name]
    assert deleted(store.actions()) == set()


def test_while_nobody_says_whether_a_resource_is_there_nothing_is_decided() -> None:
    store, of = stored(state(), resources=False), policy()
    server = OneByOne(of, down=True)
    owners = Owners(server)  # type: ignore[arg-type]
    assert not owners.known(store)
    server.down = False
    assert owners.known(store)
    assert deleted(store.actions()) == set()


@pytest.mark.parametrize("others", [(), (resource({}),)], ids=["gone", "made again"])
def test_a_resource_that_is_gone_takes_its_objects_along_and_is_asked_for_once(
    others: tuple[CustomResource, ...],
) -> None:
    again = [
        msgspec.structs.replace(one, metadata=Metadata(name="cluster-policy", uid="new")) for one in others
    ]
    store = stored(state(), resources=False)
    server = OneByOne(*again)
    owners = Owners(server)  # type: ignore[arg-type]
    assert owners.known(store)
    assert owners.known(store)
    assert server.asked == ["cluster-policy"]
    assert [one.metadata.uid for one in store.state.policies.values()] == ["new"] * len(again)
    assert deleted(store.actions())


def test_resources_that_are_known_are_not_asked_for() -> None:
    store, server = stored(state()), OneByOne()
    owners = Owners(server)  # type: ignore[arg-type]
    assert owners.known(store)
    store.actions()
    store.keep_only(CLUSTER_POLICY, ())
    store.keep_only(NVIDIA_DRIVER, ())
    assert owners.known(store)
    assert server.asked == ["cluster-policy"]
