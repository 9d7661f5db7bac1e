"""What a ClusterPolicy says became of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from driverforge_operator.plan.actions import Apply, SetStatus
from driverforge_operator.plan.whole import plan
from driverforge_operator.ports import Ref
from driverforge_operator.state.kinds import CustomResource
from driverforge_operator.state.observed import State
from support.samples.operatorcases import policy_state


def told(state: State) -> tuple[str, str, str]:
    """Its state, and the reason and words of the condition that is true."""
    (status,) = [one for one in plan(state) if isinstance(one, SetStatus)]
    (condition,) = [one for one in status.conditions if one.status == "True"]
    return status.state, condition.reason, condition.message


def rolled_out(state: State, **status: Any) -> State:
    """The cluster after its objects were applied, each DaemonSet with this status."""
    found = [dict(one.document) for one in plan(state) if isinstance(one, Apply)]
    objects = {
        Ref.of(one): {**one, "metadata": {**one["metadata"], "generation": 2}, "status": status}
        for one in found
    }
    return replace(state, objects=objects)


EXPORTER = "nvidia-dcgm-exporter"
DONE = {
    "observedGeneration": 2,
    "desiredNumberScheduled": 1,
    "numberAvailable": 1,
    "updatedNumberScheduled": 1,
}


def test_all_is_there() -> None:
    assert told(rolled_out(without_labels(), **DONE)) == ("ready", "Reconciled", "")


def test_pods_that_are_ready_with_the_old_driver_are_told_apart() -> None:
    rolled = {**DONE, "desiredNumberScheduled": 5, "numberAvailable": 4, "updatedNumberScheduled": 1}
    message = told(rolled_out(without_labels(), **rolled))[2]
    driver = "nvidia-driver-daemonset-ubuntu22.04: 1 of 5 driver pods are ready, and 3 of the old driver"
    assert driver in message


def without_labels(**spec: Any) -> State:
    """The usual cluster, whose policy wants no labels on DaemonSets, and `spec`."""
    state = policy_state("default")
    (policy,) = state.policies.values()
    daemonsets = {**policy.spec["daemonsets"], "labels": {}}
    changed = CustomResource(metadata=policy.metadata, spec={**policy.spec, "daemonsets": daemonsets, **spec})
    return replace(state, policies={"cluster-policy": changed})


def test_labels_that_have_no_effect_are_told() -> None:
    """Defect 15; the chart of NVIDIA's operator says who manages its DaemonSets: here they are ours."""
    state, reason, message = told(rolled_out(policy_state("daemonsets-common"), **DONE))
    assert (state, reason) == ("ready", "Reconciled")
    assert message == (
        "spec.daemonsets.labels: app, app.kubernetes.io/managed-by: these labels have no effect: "
        "the operator finds its DaemonSets by them"
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"cdi": {"enabled": False, "nriPluginEnabled": True}}, "write spec.cdi.enabled: true"),
        (
            {"cdi": {"nriPluginEnabled": True}, "toolkit": {"enabled": False}},
            "spec.toolkit.enabled: true",
        ),
    ],
)
def test_nri_needs_cdi_and_the_toolkit(spec: dict[str, Any], words: str) -> None:
    state = without_labels(**spec)
    status, reason, message = told(state)
    assert (status, reason) == ("notReady", "InvalidSpec")
    assert message.startswith("spec.cdi.nriPluginEnabled: ")
    assert words in message
    assert not [one for one in plan(state) if isinstance(one, Apply)]


def test_a_pod_of_the_last_change_is_missing() -> None:
    state, reason, message = told(
        rolled_out(policy_state("default"), **{**DONE, "updatedNumberScheduled": 0})
    )
    assert (state, reason) == ("notReady", "OperandNotReady")
    assert message.startswith("ClusterPolicy is not ready; states not ready: [state-driver state-")
    assert "nvidia-driver-daemonset-ubuntu22.04: 0 of 1 driver pods are ready" in message


def test_what_a_pool_runs_is_told() -> None:
    state = rolled_out(policy_state("default"), **DONE)
    (status,) = [one for one in plan(state) if isinstance(one, SetStatus)]
    (pool,) = status.pools
    assert pool["image"] == "nvcr.io/nvidia/driver:595.91.07-ubuntu22.04"
    assert (pool["desired"], pool["ready"], pool["upToDate"]) == (1, 1, 1)
    assert (pool["reason"], pool["message"]) == ("", "")


def test_no_gpu_and_no_features() -> None:
    assert told(policy_state("no-gpu-nodes"))[:2] == ("ready", "NoGPUNodes")
    assert told(policy_state("no-nfd"))[:2] == ("ready", "NFDLabelsMissing")


def test_a_wrong_field_is_named() -> None:
    state = policy_state("default")
    found = state.policies["cluster-policy"]
    spec = {**found.spec, "driver": {**found.spec["driver"], "kernelModuleType": "closed"}}
    policies = {"cluster-policy": CustomResource(metadata=found.metadata, spec=spec)}
    reason, message = told(replace(state, policies=policies))[1:]
    assert reason == "InvalidSpec"
    assert message.startswith("spec.driver.kernelModuleType: 'closed' is none of")


def test_a_message_is_no_longer_than_the_api_server_takes() -> None:
    state = policy_state("default")
    found = state.policies["cluster-policy"]
    labels = {f"example.com/{number}": [] for number in range(2000)}
    spec = {**found.spec, "daemonsets": {**found.spec["daemonsets"], "labels": labels}}
    policies = {"cluster-policy": CustomResource(metadata=found.metadata, spec=spec)}
    reason, message = told(replace(state, policies=policies))[1:]
    assert reason == "InvalidSpec"
    assert 32000 < len(message) <= 32768
    assert message.startswith("spec.daemonsets.labels.example.com/0: ")
    *whole, end = message.split("; ")
    assert end == "…"
    # each problem is told whole, or not at all
    (words,) = {one.partition(": ")[2] for one in whole}
    assert words


def test_a_long_message_of_one_piece_is_cut_where_it_is_too_long() -> None:
    state = policy_state("default")
    found = state.policies["cluster-policy"]
    spec = {**found.spec, "daemonsets": {**found.spec["daemonsets"], "labels": {"x" * 40000: []}}}
    policies = {"cluster-policy": CustomResource(metadata=found.metadata, spec=spec)}
    message = told(replace(state, policies=policies))[2]
    assert len(message) == 32768
    assert message.endswith("xx…")


def test_a_message_that_just_fits_is_whole() -> None:
    state = policy_state("default")
    found = state.policies["cluster-policy"]

    def refused(text: str) -> str:
        spec = {**found.spec, "driver": {**found.spec["driver"], "kernelModuleType": text}}
        policies = {"cluster-policy": CustomResource(metadata=found.metadata, spec=spec)}
        return told(replace(state, policies=policies))[2]

    fits = 32768 - len(refused("x")) + 1
    assert len(refused("x" * fits)) == len(refused("x" * (fits + 1))) == 32768
    assert not refused("x" * fits).endswith("…")


def test_a_state_is_as_ready_as_its_daemonset() -> None:
    """Defect 16: an object that nobody asked for, the exporter's ServiceMonitor, says nothing of its pods."""
    state = rolled_out(without_labels(), **DONE)
    exporter = next(ref for ref in state.objects if (ref.kind, ref.name) == ("DaemonSet", EXPORTER))
    late = {**state.objects[exporter], "status": {**DONE, "numberAvailable": 0}}
    _, reason, message = told(replace(state, objects={**state.objects, exporter: late}))
    assert reason == "OperandNotReady"
    assert "states not ready: [state-dcgm-exporter]: nvidia-dcgm-exporter: 0 of 1 pods are ready" in message
