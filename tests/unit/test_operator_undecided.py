"""While nobody can say what is wanted, nothing that runs is taken away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from driverforge_core import nodekeys
from driverforge_operator.plan.actions import Action, Apply, Delete, PatchNode, SetStatus
from driverforge_operator.plan.whole import plan
from driverforge_operator.state.kinds import CustomResource, Metadata, NodeDocument
from driverforge_operator.state.nodes import Node
from driverforge_operator.state.observed import State
from support.samples.operatorcases import driver_state, policy_state

SPEC: dict[str, Any] = {
    "default": True,
    "repository": "r.example",
    "version": "1",
    "manager": {"repository": "r.example", "image": "manager", "version": "1"},
}


def node(**labels: str) -> Node:
    found = {
        nodekeys.GPU_FEATURES[0]: "true",
        nodekeys.OS_ID: "ubuntu",
        nodekeys.OS_VERSION: "22.04",
        **labels,
    }
    return Node.of(msgspec.convert({"metadata": {"name": "a", "labels": found}}, NodeDocument))


def driver(name: str, **spec: Any) -> CustomResource:
    return CustomResource(metadata=Metadata(name=name, uid=f"uid-{name}"), spec={**SPEC, **spec})


def cluster(one: Node, *drivers: CustomResource, of: State | None = None) -> State:
    """A cluster of one node; with `of`, the objects that were wanted there are there."""
    before = [action.document for action in plan(of) if isinstance(action, Apply)] if of else []
    applied = [Apply(document=document) for document in before]
    return State(
        namespace="gpu-operator",
        nodes={one.name: one},
        policies={},
        drivers={found.metadata.name: found for found in drivers},
        objects={action.ref: action.document for action in applied},
    )


def reasons(actions: list[Action]) -> dict[str, str]:
    """The reason of each resource's Error condition."""
    return {one.ref.name: one.conditions[1].reason for one in actions if isinstance(one, SetStatus)}


RUNNING = cluster(node(), driver("x"))
LABELLED = node(**{nodekeys.DRIVER_OWNER: "x"})


def test_an_owner_that_goes_takes_its_objects_along() -> None:
    deleted = [one for one in plan(cluster(node(), of=RUNNING)) if isinstance(one, Delete)]
    assert "DaemonSet" in {one.ref.kind for one in deleted}


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (cluster(LABELLED, driver("x"), driver("y"), of=RUNNING), "ConflictingNodeSelector"),
        (cluster(LABELLED, driver("x", driverType="wrong"), of=RUNNING), "InvalidSpec"),
        (cluster(node(**{nodekeys.OS_ID: ""}), driver("x"), of=RUNNING), "DriverNotReady"),
    ],
    ids=("two claim it", "errors in the spec", "the system's labels are gone"),
)
def test_what_runs_stays(after: State, reason: str) -> None:
    actions = plan(after)
    assert not [one for one in actions if isinstance(one, Delete)]
    assert reasons(actions)["x"] == reason


def test_a_claimed_node_keeps_its_owner_while_another_claims_it_too() -> None:
    (patch,) = (
        one for one in plan(cluster(LABELLED, driver("x"), driver("y"))) if isinstance(one, PatchNode)
    )
    assert nodekeys.DRIVER_OWNER not in patch.labels


def test_every_error_of_a_spec_is_told_with_its_path() -> None:
    wrong = driver("x", driverType="wrong", imagee="y", startupProbe={"periodSeconds": 0})
    (status,) = (one for one in plan(cluster(node(), wrong)) if isinstance(one, SetStatus))
    told = status.conditions[1].message
    for words in (
        "spec.driverType: 'wrong' is none of 'gpu'",
        "spec.imagee: ",
        "spec.startupProbe.periodSeconds",
    ):
        assert words in told


def test_a_driver_whose_objects_are_not_there_yet_is_not_ready() -> None:
    assert reasons(plan(RUNNING)) == {"x": "DriverNotReady"}


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({nodekeys.OS_ID: ""}, "'' '22.04'"),
        ({nodekeys.OS_VERSION: "rolling"}, "'ubuntu' 'rolling'"),
    ],
)
def test_several_nodes_without_a_system_are_told_in_one_sentence(labels: dict[str, str], words: str) -> None:
    one = node(**labels)
    state = replace(cluster(one, driver("x")), nodes={name: replace(one, name=name) for name in "abc"})
    (status,) = (found for found in plan(state) if isinstance(found, SetStatus))
    assert status.conditions[1].message == (
        f"nothing changes on 3 nodes (a, b, c): the labels of Node Feature Discovery name no system and "
        f"version: {words}"
    )


def test_several_nodes_that_no_driver_selects_are_told_in_one_sentence() -> None:
    state, one = policy_state("nvidia-driver-crd"), node()
    elsewhere = driver("x", default=False, nodeSelector={"a": "b"})
    nodes = {name: replace(one, name=name) for name in "abc"}
    found = plan(replace(state, nodes=nodes, drivers={"x": elsewhere}))
    (status,) = (one for one in found if isinstance(one, SetStatus) and one.ref.kind == "ClusterPolicy")
    told = "nothing changes on 3 nodes (a, b, c): no NVIDIADriver has a nodeSelector that matches"
    assert told in status.conditions[1].message


def test_a_clusterpolicys_driver_stays_while_a_node_has_lost_its_system() -> None:
    before = policy_state("default")
    applied = [one for one in plan(before) if isinstance(one, Apply)]
    (found,) = before.nodes.values()
    labels = {key: value for key, value in found.labels.items() if key != nodekeys.OS_ID}
    after = replace(
        before,
        nodes={found.name: replace(found, labels=labels)},
        objects={one.ref: one.document for one in applied},
    )
    assert not [one for one in plan(after) if isinstance(one, Delete)]
    gone = replace(after, nodes={})
    assert "DaemonSet" in {one.ref.kind for one in plan(gone) if isinstance(one, Delete)}


def test_drivers_pods_stay_when_nvidiadrivers_take_over_from_the_policy() -> None:
    """As with NVIDIA's operator: every node of the cluster would lose its driver at once."""
    state = policy_state("default")
    objects = {one.ref: one.document for one in plan(state) if isinstance(one, Apply)}
    policy = state.policies["cluster-policy"]
    spec = {**policy.spec, "driver": {**policy.spec["driver"], "useNvidiaDriverCRD": True}}
    after = replace(
        state,
        objects=objects,
        policies={"cluster-policy": CustomResource(metadata=policy.metadata, spec=spec)},
        drivers=driver_state("minimal").drivers,
    )
    name = "nvidia-driver-daemonset-ubuntu22.04"
    gone = {(one.ref.kind, one.ref.name): one.orphan for one in plan(after) if isinstance(one, Delete)}
    assert gone["DaemonSet", name] is True
    off = {**policy.spec, "driver": {**policy.spec["driver"], "enabled": False}}
    switched = {"cluster-policy": CustomResource(metadata=policy.metadata, spec=off)}
    deleted = plan(replace(state, objects=objects, policies=switched))
    assert [one.orphan for one in deleted if isinstance(one, Delete) and one.ref.name == name] == [False]
