"""Situations of public reports (tests/cases/reported): what the doctor and `explain` say is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from driverforge_core import nodekeys
from driverforge_operator.app.look import explain
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.explain.gates import closed
from driverforge_operator.explain.sentence import table
from driverforge_toolkit.doctor import gather
from driverforge_toolkit.doctor.rules import examine
from support.fakes.fakehost import fake_node
from support.samples.explained import CRASHED, EXITED
from support.samples.scenes import NAMESPACE, NODE, OPERANDS, SceneFolder

CASES = Path(__file__).parents[1] / "cases/reported"
DUMPS: dict[str, dict[str, Any]] = yaml.safe_load((CASES / "dumps.yaml").read_text())
CLUSTERS: dict[str, dict[str, Any]] = yaml.safe_load((CASES / "clusters.yaml").read_text())


@pytest.mark.parametrize("name", DUMPS)
def test_the_doctor_names_what_was_reported(name: str, tmp_path: Path) -> None:
    case = DUMPS[name]
    for path, text in case["files"].items():
        file = tmp_path / "dump" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    node = fake_node(tmp_path / "here", gpu=False)
    node.places["/dump"] = tmp_path / "dump"
    found = examine(gather.of_dump(node.host, "/dump", install_dir="/usr/local/nvidia"))
    assert [one.rule.id for one in found] == case["seen"], case["situation"]


@pytest.mark.parametrize("name", CLUSTERS)
def test_explain_names_what_was_reported(name: str, tmp_path: Path) -> None:
    case = CLUSTERS[name]
    _, gates = explain(Dump(_scene(case).write(tmp_path)), NAMESPACE, NODE)
    gate = closed(gates)
    assert (gate.name if gate else None) == case["gate"]
    assert case.get("told", "") in table(NODE, gates, ())
    if gate:
        assert gate.finding is not None
        assert gate.finding.cause == case["cause"], case["situation"]
        assert case["command"] in gate.finding.command


def _scene(case: dict[str, Any]) -> SceneFolder:
    scene = SceneFolder(case.get("cluster", "default"))
    labels = scene.node["metadata"]["labels"]
    labels.update(case.get("labels", {}))
    for key in [key for key, value in labels.items() if value is None]:
        del labels[key]
    for name in case.get("paused", ()):
        labels[nodekeys.DEPLOY + name] = case["value"]
    scene.node["status"]["nodeInfo"].update(case.get("node", {}))
    if "daemonset" in case:
        name = OPERANDS[case["daemonset"]]
        del scene.pods[name]
        scene.warn("DaemonSet", name, "FailedCreate", case["event"])
        scene.node["status"].update(capacity={}, allocatable={})
    if "component" in case:
        _hold(scene, case)
    return scene


def _hold(scene: SceneFolder, case: dict[str, Any]) -> None:
    component, container = case["component"], case["container"]
    if component == "driver":
        scene.wait_behind_driver()
    if "image" in case:
        scene.pod(component)["spec"]["containers"][0]["image"] = case["image"]
    if "waiting" in case:
        scene.hold(component, container, {"waiting": {"reason": case["waiting"]}})
        scene.warn("Pod", scene.pod(component)["metadata"]["name"], "Failed", case["event"])
    else:
        scene.hold(component, container, CRASHED, **EXITED)
        scene.log(component, container, f"{case['log']}\n", previous=True)
