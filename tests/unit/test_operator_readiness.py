"""The ready taint: on until a node was validated in this boot, and on again after the next one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from driverforge_core import nodekeys
from driverforge_operator.plan.actions import Apply, PatchNode
from driverforge_operator.plan.labels import Readiness, readiness
from driverforge_operator.plan.whole import plan
from driverforge_operator.state.kinds import CustomResource, Metadata
from driverforge_operator.state.nodes import Node
from driverforge_operator.state.observed import State
from support.samples.operatorcases import policy_state

ROOT = Path(__file__).parents[2]
MORNING, NOON = "2026-01-01T08:00:00Z", "2026-01-01T12:00:00Z"


def cluster(case: str = "default", *, wanted: str = "true", **node: Any) -> State:
    state = policy_state(case)
    (policy,) = state.policies.values()
    metadata = Metadata(name="cluster-policy", uid="u", annotations={nodekeys.READY_TAINT: wanted})
    return replace(
        state,
        policies={"cluster-policy": CustomResource(metadata=metadata, spec=policy.spec)},
        nodes={name: replace(one, boot="first", **node) for name, one in state.nodes.items()},
    )


def patch(state: State) -> PatchNode:
    return next(one for one in plan(state) if isinstance(one, PatchNode))


def a_node(validated: str | None, boot: str = "first") -> Node:
    annotations = {nodekeys.VALIDATED: validated} if validated else {}
    return replace(next(iter(cluster().nodes.values())), annotations=annotations, boot=boot)


@pytest.mark.parametrize(
    ("node", "ready_since", "wanted"),
    [
        pytest.param(a_node(None), "", Readiness(tainted=True, validated=None), id="new"),
        pytest.param(
            a_node(None), MORNING, Readiness(tainted=False, validated=f"first {MORNING}"), id="validated"
        ),
        pytest.param(
            a_node(f"first {MORNING}"),
            "",
            Readiness(tainted=False, validated=f"first {MORNING}"),
            id="validated and its pod starts anew",
        ),
        pytest.param(
            a_node(f"first {MORNING}", "second"),
            MORNING,
            Readiness(tainted=True, validated=f"first {MORNING}"),
            id="booted and the kubelet says what was before",
        ),
        pytest.param(
            a_node(f"first {MORNING}", "second"),
            NOON,
            Readiness(tainted=False, validated=f"second {NOON}"),
            id="validated again",
        ),
    ],
)
def test_a_node_is_validated_once_a_boot(node: Node, ready_since: str, wanted: Readiness) -> None:
    assert readiness(node, wanted=True, ready_since=ready_since) == wanted


def test_off_unless_somebody_wants_it() -> None:
    assert patch(cluster(wanted="")).tainted is None
    assert patch(cluster(wanted="", tainted=True)).tainted is False


def test_on_where_a_validator_runs() -> None:
    assert patch(cluster()).tainted is True
    label = f"{nodekeys.DEPLOY}operator-validator"
    for labels in ({nodekeys.OPERANDS: "false"}, {label: "false"}):
        state = cluster()
        nodes = {name: replace(one, labels={**one.labels, **labels}) for name, one in state.nodes.items()}
        assert patch(replace(state, nodes=nodes)).tainted is None


def test_a_node_that_nobody_has_labelled_yet_keeps_what_its_kubelet_gave_it() -> None:
    bare = cluster(tainted=True, labels={})
    assert not [one for one in plan(bare) if isinstance(one, PatchNode)]
    assert not [one for one in plan(cluster(labels={})) if isinstance(one, PatchNode)]
    # without a GPU it goes, and where nobody wants it
    labels = {nodekeys.KERNEL: "6.8.0-45-generic"}
    assert patch(cluster(tainted=True, labels=labels)).tainted is False
    assert patch(cluster(tainted=True, labels={}, wanted="")).tainted is False


def test_what_labels_a_new_node_stands_it() -> None:
    """One without the other would leave a new node tainted for ever."""
    values = yaml.safe_load((ROOT / "charts/driverforge/values.yaml").read_text())
    discovery = values["node-feature-discovery"]
    for part in (discovery["worker"], discovery["master"], values["operator"]):
        assert {"key": nodekeys.NOT_READY, "operator": "Exists", "effect": "NoSchedule"} in part[
            "tolerations"
        ]


def test_every_operand_stands_it() -> None:
    for one in plan(cluster("sandbox-kata")):
        if isinstance(one, Apply) and one.ref.kind == "DaemonSet":
            tolerations = one.document["spec"]["template"]["spec"]["tolerations"]
            assert nodekeys.NOT_READY in {each["key"] for each in tolerations}, one.ref
