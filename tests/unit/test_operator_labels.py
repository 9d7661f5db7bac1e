"""Labels and annotations of nodes: what NVIDIA's operator writes on the same nodes, and what it leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driverforge_core import nodekeys
from driverforge_operator.operands.table import OPERANDS, Operand
from driverforge_operator.plan.actions import LabelNamespace
from driverforge_operator.plan.intent import read_intent
from driverforge_operator.plan.labels import label
from driverforge_operator.plan.placement import place
from driverforge_operator.plan.whole import plan
from driverforge_operator.state.kinds import CustomResource
from driverforge_operator.state.nodes import Node
from driverforge_operator.state.observed import State
from driverforge_operator.state.surroundings import OpenShiftCluster
from support.samples.operatorcases import CASES, POLICY_CASES, THEIRS, policy_state, result

RECORDED: dict[str, dict[str, Any]] = json.loads((CASES / "facts/node-labels.json").read_text())


def after(
    state: State, node: Node, operands: Sequence[Operand] = OPERANDS
) -> tuple[dict[str, str], dict[str, str]]:
    """A node's labels and annotations once the plan for it is carried out."""
    intent = read_intent(state.namespace, state.policies, state.drivers)
    patch = label(node, place(node, intent), intent, operands=operands)
    labels, annotations = dict(node.labels), dict(node.annotations)
    for target, changes in ((labels, patch.labels), (annotations, patch.annotations)) if patch else ():
        for key, value in changes.items():
            if value is None:
                target.pop(key, None)
            else:
                target[key] = value
    return labels, annotations


def replaced(policy: CustomResource, **spec: Any) -> CustomResource:
    return CustomResource(metadata=policy.metadata, spec={**policy.spec, **spec})


@pytest.mark.parametrize("case", POLICY_CASES)
def test_labels_are_those_of_nvidias_operator(case: str) -> None:
    state = policy_state(case)
    for name, recorded in RECORDED[case].items():
        node = state.nodes[name]
        labels, annotations = after(state, node, THEIRS)
        wanted = {**node.labels, **recorded["added"]}
        for key in recorded["removed"]:
            wanted.pop(key, None)
        if node.gpu and node.runtime == "cri-o":
            # ours: the toolkit of each runtime finds its nodes
            wanted[nodekeys.RUNTIME] = "crio"
        assert labels == wanted, name
        assert annotations == recorded["annotations"], name


SANDBOXES = [one for one in POLICY_CASES if one.startswith("sandbox")]


@given(st.lists(st.sampled_from(SANDBOXES), min_size=2, max_size=6))
def test_what_another_policy_says_a_node_is_for_leaves_nothing_behind(order: list[str]) -> None:
    """Defect 9: upstream keeps labels and default workload for the process, whoever set them last."""
    (node,) = policy_state("default").nodes.values()
    alone = {case: after(policy_state(case), node) for case in SANDBOXES}
    assert len({str(one) for one in alone.values()}) > 1
    assert [after(policy_state(case), node) for case in order] == [alone[case] for case in order]


@pytest.mark.parametrize("case", POLICY_CASES)
def test_a_node_that_has_its_labels_is_left_alone(case: str) -> None:
    state = policy_state(case)
    intent = read_intent(state.namespace, state.policies, state.drivers)
    for node in state.nodes.values():
        labels, annotations = after(state, node)
        done = Node(
            name=node.name,
            labels=labels,
            annotations=annotations,
            kernel=node.kernel,
            arch=node.arch,
            os_image=node.os_image,
            runtime=node.runtime,
            ready=node.ready,
            unschedulable=node.unschedulable,
        )
        assert label(done, place(done, intent), intent) is None


@pytest.mark.parametrize("case", ["default", "sandbox-passthrough"])
@pytest.mark.parametrize("there", [{}, {nodekeys.OPERANDS: "false"}], ids=["operands", "none"])
def test_switches_of_other_programs_stay(case: str, there: dict[str, str]) -> None:
    """NVIDIA's System Management and sites of their own select nodes by such labels."""
    theirs = {f"{nodekeys.DEPLOY}nvsm": "true", f"{nodekeys.DEPLOY}site-probe": "true"}
    state = policy_state(case)
    for node in state.nodes.values():
        labels, _ = after(state, replace(node, labels={**node.labels, **theirs, **there}))
        assert theirs.items() <= labels.items()


def test_what_nvidias_operator_switched_on_for_itself_alone_goes() -> None:
    names = ("dra-driver", "dra-validator", "dcgm-dra", "dcgm-exporter-dra")
    theirs = {nodekeys.DEPLOY + one: "true" for one in names}
    state = policy_state("default")
    for node in state.nodes.values():
        labels, _ = after(state, replace(node, labels={**node.labels, **theirs}))
        assert not theirs.keys() & labels.keys()


def test_a_mig_manager_that_somebody_asked_for_stays_with_containers() -> None:
    (node,) = policy_state("default").nodes.values()
    asked = replace(node, labels={**node.labels, f"{nodekeys.DEPLOY}mig-manager": "true"})
    assert f"{nodekeys.DEPLOY}mig-manager" in after(policy_state("default"), asked)[0]
    assert f"{nodekeys.DEPLOY}mig-manager" not in after(policy_state("sandbox-passthrough"), asked)[0]


def test_a_default_workload_that_is_none_is_containers() -> None:
    """As upstream has it; MIG managers are for containers, too."""
    policies = {
        name: replaced(one, sandboxWorkloads={"enabled": True, "defaultWorkload": "vm-pass"})
        for name, one in policy_state("mig-mixed-custom").policies.items()
    }
    state = policy_state("mig-mixed-custom")
    for node in state.nodes.values():
        assert after(replace(state, policies=policies), node)[0] == after(state, node)[0]


def test_upgrade_labels_are_never_ours() -> None:
    state = policy_state("default")
    for node in state.nodes.values():
        labels, _ = after(state, node)
        assert not [key for key in labels if key.startswith("nvidia.com/gpu-driver-upgrade")]
        assert labels[nodekeys.GPU_PRESENT] == "true"


def test_the_namespace_takes_privileged_pods_where_that_is_asked_for() -> None:
    (recorded,) = result("clusterpolicy", "psa", "result.yaml")

    def labelled(
        case: str, labels: dict[str, str] | None, *, openshift: bool = False
    ) -> list[dict[str, str]]:
        state = policy_state(case)
        version = OpenShiftCluster(version="4.16") if openshift else None
        around = replace(state.around, namespace_labels=labels, openshift=version)
        found = plan(replace(state, around=around))
        return [dict(one.labels) for one in found if isinstance(one, LabelNamespace)]

    wanted = recorded["namespaceLabels"]
    assert labelled("psa", {"a": "b"}) == [wanted]
    assert labelled("psa", {**wanted, "a": "b"}) == []
    assert labelled("psa", None) == labelled("default", {}) == labelled("psa", {}, openshift=True) == []
