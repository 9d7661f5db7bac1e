"""When an object is as it shall be, and which ClusterPolicy counts."""

from __future__ import annotations

from typing import Any

import pytest

from driverforge_operator.plan.actions import Apply, SetStatus
from driverforge_operator.plan.whole import covers, plan
from driverforge_operator.ports import Ref
from driverforge_operator.state.kinds import CustomResource, Metadata
from driverforge_operator.state.observed import State
from support.samples.operatorcases import driver_state, policy_spec


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [
        ({"a": 1, "default": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({}, {"a": 1}, False),
        ({}, {"a": {}, "b": [], "c": "", "d": None}, True),
        ({}, {"a": False}, False),
        ({"a": [{"x": 1, "default": 2}]}, {"a": [{"x": 1}]}, True),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": "1"}, {"a": {"b": 1}}, False),
    ],
)
def test_what_others_added_is_no_difference(
    found: dict[str, Any], wanted: dict[str, Any], same: bool
) -> None:
    assert covers(found, wanted) is same


def test_an_object_that_somebody_changed_is_applied_again() -> None:
    state = driver_state("minimal")
    wanted = [one.document for one in plan(state) if isinstance(one, Apply)]
    *others, workload = wanted
    changed = {**workload, "spec": {**workload["spec"], "updateStrategy": {"type": "RollingUpdate"}}}
    there = {Ref.of(one): one for one in (*others, changed)}
    again = State(
        namespace=state.namespace,
        nodes=state.nodes,
        policies={},
        drivers=state.drivers,
        objects=there,
    )
    assert [one.document for one in plan(again) if isinstance(one, Apply)] == [workload]


def test_the_oldest_clusterpolicy_counts() -> None:
    def policy(name: str, created: str) -> CustomResource:
        metadata = Metadata(name=name, creation_timestamp=created, generation=7)
        return CustomResource(metadata=metadata, spec=policy_spec("default"))

    policies = {
        "a": policy("a", "2026-02-01T00:00:00Z"),
        "z": policy("z", "2026-01-01T00:00:00Z"),
    }
    state = State(namespace="gpu-operator", nodes={}, policies=policies, drivers={}, objects={})
    ignored, active = [one for one in plan(state) if isinstance(one, SetStatus)]
    assert (ignored.ref.name, ignored.state, ignored.generation) == ("a", "ignored", 7)
    assert "ClusterPolicy z is older" in ignored.conditions[1].message
    assert (active.ref.name, active.state, active.conditions[0].reason) == ("z", "ready", "NFDLabelsMissing")
