"""A ClusterPolicy on OpenShift: what its operands have there, and nowhere else.

No case of NVIDIA's operator was recorded on OpenShift but for drivers; the accounts are those for which its
states have a SecurityContextConstraints.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from driverforge_operator.operands.manifest import containers, pod
from driverforge_operator.plan.actions import Apply, LabelNamespace
from driverforge_operator.plan.whole import plan
from driverforge_operator.state.observed import State
from driverforge_operator.state.surroundings import OpenShiftCluster
from support.samples.operatorcases import POLICY_CASES, policy_state

CONSTRAINTS = "SecurityContextConstraints"
THEIRS = {
    "nvidia-dcgm",
    "nvidia-dcgm-exporter",
    "nvidia-driver",
    "nvidia-kata-sandbox-device-plugin",
    "nvidia-mig-manager",
    "nvidia-node-status-exporter",
    "nvidia-sandbox-device-plugin",
    "nvidia-vfio-manager",
    "nvidia-vgpu-device-manager",
    "nvidia-vgpu-manager",
}
OWN = "nvidia-gpu-operator"
MONITORING = "openshift.io/cluster-monitoring"


def on_openshift(case: str, *, namespace: str = "", labels: dict[str, str] | None = None) -> State:
    state = policy_state(case)
    around = replace(state.around, openshift=OpenShiftCluster(version="4.16.21"), namespace_labels=labels)
    return replace(state, around=around, namespace=namespace or state.namespace)


def applied(state: State, kind: str) -> dict[str, Any]:
    """Objects of a kind, by name."""
    found = (one.document for one in plan(state) if isinstance(one, Apply) and one.ref.kind == kind)
    return {one["metadata"]["name"]: one for one in found}


def test_the_accounts_with_constraints_are_those_of_nvidias_operator() -> None:
    found = [applied(on_openshift(case), CONSTRAINTS) for case in POLICY_CASES]
    assert {name for one in found for name in one} == THEIRS
    assert not [case for case in POLICY_CASES if applied(policy_state(case), CONSTRAINTS)]


@pytest.mark.parametrize("case", POLICY_CASES)
def test_constraints_let_pods_have_of_the_host_what_they_ask_for_and_no_more(case: str) -> None:
    state = on_openshift(case)
    known = applied(state, CONSTRAINTS)
    for workload in applied(state, "DaemonSet").values():
        settings = pod(workload)
        if found := known.get(account := settings["serviceAccountName"]):
            assert found["users"] == [f"system:serviceaccount:{state.namespace}:{account}"]
            for part in ("IPC", "Network", "PID"):
                assert found[f"allowHost{part}"] is settings.get(f"host{part}", False)
            ports = [port for one in containers(workload) for port in one.get("ports", ())]
            assert found["allowHostPorts"] is any("hostPort" in port for port in ports)


def test_whoever_has_none_of_its_own_may_use_the_privileged_ones() -> None:
    for case in POLICY_CASES:
        state = on_openshift(case)
        roles = applied(state, "Role")
        for workload in applied(state, "DaemonSet").values():
            rules = roles[pod(workload)["serviceAccountName"]]["rules"]
            assert [one for one in rules if one.get("resourceNames") == ["privileged"]]


def test_feature_discovery_writes_a_file_for_openshifts_node_feature_discovery() -> None:
    def asked(state: State) -> str | None:
        (main,) = pod(applied(state, "DaemonSet")["gpu-feature-discovery"])["containers"]
        values = {one["name"]: one.get("value") for one in main["env"]}
        return values.get("USE_NODE_FEATURE_API")

    assert (asked(on_openshift("default")), asked(policy_state("default"))) == ("false", None)


@pytest.mark.parametrize(
    ("namespace", "labels", "wanted"),
    [
        (OWN, {"a": "b"}, [{MONITORING: "true"}]),
        # an administrator's choice, either way
        (OWN, {MONITORING: "false"}, []),
        (OWN, {MONITORING: "true"}, []),
        # a namespace that others may share
        ("gpu-operator", {}, []),
        # not read yet
        (OWN, None, []),
    ],
)
def test_openshifts_prometheus_looks_into_the_namespace_that_is_ours_alone(
    namespace: str, labels: dict[str, str] | None, wanted: list[dict[str, str]]
) -> None:
    state = on_openshift("default", namespace=namespace, labels=labels)
    assert [dict(one.labels) for one in plan(state) if isinstance(one, LabelNamespace)] == wanted
