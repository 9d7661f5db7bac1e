"""`explain NODE` for somebody who may not read all of it, and as a plugin of kubectl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomllib

from driverforge_core import nodekeys
from driverforge_core.errors import NotPermitted
from driverforge_operator.app.look import explain
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.explain.gate import GateState
from driverforge_operator.explain.gates import closed
from support.samples.explained import undeployed
from support.samples.scenes import NAMESPACE, NODE, SceneFolder


def narrow(scene: SceneFolder, folder: Path, *plurals: str) -> Dump:
    """What a user sees who may not list these kinds."""

    class Narrow(Dump):
        def everywhere(self, kind: Any, *, fields: str = "") -> Any:
            if kind.plural in plurals:
                raise NotPermitted("the API server answers 403 Forbidden", details=[kind.plural])
            return super().everywhere(kind, fields=fields)

    return Narrow(scene.write(folder))


def test_a_node_that_may_not_be_read_is_not_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(NotPermitted, match="nodes may not be read") as refused:
        explain(narrow(SceneFolder(), tmp_path, "nodes"), NAMESPACE, NODE)
    assert refused.value.details == ("nodes: the API server answers 403 Forbidden; nodes",)
    assert "kubectl auth can-i list nodes" in refused.value.resolution


RESOURCES = ("clusterpolicies", "nvidiadrivers")


@pytest.mark.parametrize("label", ["true", None])
def test_custom_resources_that_may_not_be_read_are_not_said_to_be_missing(
    tmp_path: Path, label: str | None
) -> None:
    scene = undeployed()
    scene.daemonsets, scene.pods = {}, {}
    if label is None:
        del scene.node["metadata"]["labels"][nodekeys.GPU_PRESENT]
    _, gates = explain(narrow(scene, tmp_path, *RESOURCES), NAMESPACE, NODE)
    (present,) = [one for one in gates if one.name == "gpu.present"]
    if label:
        assert (present.state, present.told) == (
            GateState.OPEN,
            "true; custom resources may not be read",
        )
        return
    assert present.state is GateState.CLOSED
    assert present.finding is not None
    assert present.finding.cause == "operator-down"
    assert present.finding.told.startswith("custom resources may not be read: ")


@pytest.mark.parametrize("hidden", [RESOURCES, RESOURCES[:1]])
def test_a_switch_asks_for_an_operand_where_custom_resources_may_not_be_read(
    tmp_path: Path, hidden: tuple[str, ...]
) -> None:
    _, gates = explain(narrow(undeployed(), tmp_path, *hidden), NAMESPACE, NODE)
    found = closed(gates)
    assert found is not None
    assert (found.name, found.told) == ("driver pod", "no DaemonSet brings the driver")


def test_a_policy_that_may_be_read_is_believed_of_its_operands(tmp_path: Path) -> None:
    """Whatever NVIDIADrivers say, which nobody may read here."""
    scene = undeployed()
    toolkit = "nvidia-container-toolkit-daemonset"
    del scene.pods[toolkit], scene.daemonsets[toolkit]
    scene.policy["spec"]["toolkit"] = {"enabled": False}
    states = []
    for by_resource in (False, True):
        scene.policy["spec"]["driver"] = {"enabled": False, "useNvidiaDriverCRD": by_resource}
        _, gates = explain(narrow(scene, tmp_path, "nvidiadrivers"), NAMESPACE, NODE)
        states.append({one.name: one.state for one in gates})
    assert [one["driver pod"] for one in states] == [GateState.OFF, GateState.CLOSED]
    assert [one["toolkit"] for one in states] == [GateState.OFF, GateState.OFF]


def test_kubectl_finds_it_as_a_plugin() -> None:
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-driverforge"] == scripts["driverforge-operator"]


def test_what_a_user_may_not_read_is_told(tmp_path: Path) -> None:
    class Narrow(Dump):
        """A user of one namespace."""

        def everywhere(self, kind: Any, *, fields: str = "") -> Any:
            if kind.namespaced:
                raise NotPermitted("the API server answers 403 Forbidden", details=[kind.plural])
            return super().everywhere(kind, fields=fields)

    sight, gates = explain(Narrow(SceneFolder().write(tmp_path)), NAMESPACE, NODE)
    assert closed(gates) is None
    assert [one.partition(":")[0] for one in sight.unread] == [
        "pods of all namespaces",
        "daemonsets of all namespaces",
        "events of all namespaces",
    ]
