"""`status`: pools, and which nodes are ready, wait, or still run the old driver."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from driverforge_core import nodekeys
from driverforge_core.errors import UsageError
from driverforge_operator.app.look import explain, look
from driverforge_operator.cli import cli
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.explain.documents import DOCUMENTS, StatusDocument
from driverforge_operator.explain.fleet import as_text, fleet
from driverforge_operator.explain.gate import GateState
from driverforge_operator.state.kinds import MANAGED_BY, MANAGER
from support.samples.scenes import NAMESPACE, NODE, SceneFolder

SCHEMAS = Path(__file__).parents[2] / "entrypoints/driverforge_operator/data"


def status(scene: SceneFolder, folder: Path) -> StatusDocument:
    return fleet(look(Dump(scene.write(folder)), NAMESPACE))


def update(scene: SceneFolder, image: str) -> None:
    """The DaemonSet has another driver from now on; its pods have the one from before."""
    (container,) = scene.daemonsets["nvidia-driver-daemonset"]["spec"]["template"]["spec"]["containers"]
    container["image"] = image


def test_a_pool_that_is_done(tmp_path: Path) -> None:
    (pool,) = status(SceneFolder(), tmp_path)["pools"]
    assert (pool["ready"], pool["waiting"], pool["old"]) == (["gpu-0"], [], [])
    assert pool["on_delete"]


@pytest.mark.parametrize("whose", ["its pod's", "ours"])
def test_of_two_drivers_for_a_node_its_pods_counts_then_ours(whose: str, tmp_path: Path) -> None:
    scene = SceneFolder()
    name = "nvidia-driver-daemonset"
    other = copy.deepcopy(scene.daemonsets[name])
    other["metadata"].update(name="a-driver-by-hand", namespace="a-namespace-before-ours")
    scene.daemonsets = {"by hand": other, **scene.daemonsets}
    if whose == "ours":
        del scene.pods[name]
    counted = {
        one["daemonset"]: [*one["ready"], *(waits["node"] for waits in one["waiting"])]
        for one in status(scene, tmp_path)["pools"]
    }
    assert counted == {"a-driver-by-hand": [], name: ["gpu-0"]}


def test_a_driver_by_hand_has_the_node_where_it_runs(tmp_path: Path) -> None:
    scene = SceneFolder()
    other = copy.deepcopy(scene.daemonsets["nvidia-driver-daemonset"])
    other["metadata"].update(name="by-hand", namespace="elsewhere")
    scene.daemonsets["by hand"] = other
    pod = scene.pod("driver")["metadata"]
    pod.update(namespace="elsewhere", ownerReferences=[{"kind": "DaemonSet", "name": "by-hand"}])
    pools = {one["daemonset"]: one for one in status(scene, tmp_path)["pools"]}
    assert pools["nvidia-driver-daemonset"]["waiting"] == []
    assert pools["by-hand"]["ready"] or pools["by-hand"]["waiting"]


def test_a_node_on_the_old_driver_and_the_command_that_moves_it_on(tmp_path: Path) -> None:
    scene = SceneFolder()
    update(scene, "nvcr.io/nvidia/driver:600.1.1-ubuntu22.04")
    (pool,) = status(scene, tmp_path)["pools"]
    (old,) = pool["old"]
    assert old["driver"] == "nvcr.io/nvidia/driver:595.91.07-ubuntu22.04"
    # a driver in use stays loaded when its pod goes, and the next pod's driver manager refuses then
    assert old["command"] == (
        "kubectl drain gpu-0 --ignore-daemonsets --delete-emptydir-data && "
        "kubectl delete pod -n gpu-operator nvidia-driver-daemonset-x7k2p"
        "  # once the new pod is ready: kubectl uncordon gpu-0"
    )
    assert pool["ready"] == ["gpu-0"]  # the old driver serves
    assert old["command"] in as_text(status(scene, tmp_path))
    _, gates = explain(Dump(tmp_path), NAMESPACE, NODE)
    (gate,) = (one for one in gates if one.name == "driver ready")
    assert gate.state is GateState.OPEN
    assert gate.told.endswith(f"-x7k2p is ready, on the old driver; moves on with: {old['command']}")


def test_a_node_that_was_cordoned_before_stays_so_on_a_new_driver(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.node["spec"]["unschedulable"] = True
    update(scene, "nvcr.io/nvidia/driver:600.1.1-ubuntu22.04")
    (pool,) = status(scene, tmp_path)["pools"]
    (old,) = pool["old"]
    assert old["command"].startswith("kubectl drain gpu-0 ")
    assert "uncordon" not in old["command"]


def test_a_driver_pod_is_not_said_to_stop_the_pods_that_use_its_gpus(tmp_path: Path) -> None:
    scene = SceneFolder()
    update(scene, "nvcr.io/nvidia/driver:600.1.1-ubuntu22.04")
    text = as_text(status(scene, tmp_path))
    assert "stops its GPU pods" not in text
    assert "drain a node before its driver pod is deleted" in text


def test_another_label_of_the_template_makes_no_other_driver(tmp_path: Path) -> None:
    scene = SceneFolder()  # the label of the chart's version: each one outdates every driver pod upstream
    template = scene.daemonsets["nvidia-driver-daemonset"]["spec"]["template"]
    template["metadata"]["labels"]["helm.sh/chart"] = "gpu-operator-v27"
    assert status(scene, tmp_path)["pools"][0]["old"] == []
    template["spec"]["initContainers"][0]["env"].append({"name": "DRIVER_CONFIG_DIGEST", "value": "7"})
    assert len(status(scene, tmp_path)["pools"][0]["old"]) == 1


def test_nodes_that_wait_for_the_same_are_one_line(tmp_path: Path) -> None:
    scene = SceneFolder()
    for number in range(1, 30):
        other = copy.deepcopy(scene.node)
        other["metadata"]["name"] = f"gpu-{number}"
        scene.nodes[f"gpu-{number}"] = other
    document = status(scene, tmp_path)
    assert len(document["pools"][0]["waiting"]) == 29
    assert "gpu-1 and 28 more" in as_text(document)


def test_a_gpu_node_of_no_pool_is_told(tmp_path: Path) -> None:
    scene = SceneFolder()
    del scene.daemonsets["nvidia-driver-daemonset"], scene.pods["nvidia-driver-daemonset"]
    document = status(scene, tmp_path)
    assert [one["gate"] for one in document["unserved"]] == ["driver pod"]
    assert "no driver DaemonSet" in as_text(document)


def test_what_custom_resources_say_is_shown(tmp_path: Path) -> None:
    scene = SceneFolder()
    told = {
        "type": "Error",
        "status": "True",
        "reason": "OperandNotReady",
        "message": "states not ready: [a]",
    }
    scene.policy["status"] = {"state": "notReady", "conditions": [told]}
    assert status(scene, tmp_path)["resources"] == [
        {
            "kind": "ClusterPolicy",
            "name": "cluster-policy",
            "state": "notReady",
            "told": "OperandNotReady: states not ready: [a]",
        }
    ]


@pytest.mark.parametrize("kind", ["clusterpolicies", "nvidiadrivers"])
def test_custom_resources_that_may_not_be_read_are_not_said_to_be_missing(tmp_path: Path, kind: str) -> None:
    document = status(SceneFolder(), tmp_path)
    refused = f"{kind}: the API server answers 403 Forbidden"
    assert "nothing is asked for" in as_text({**document, "resources": []})
    text = as_text({**document, "resources": [], "unread": [refused]})
    assert text.startswith("no ClusterPolicy and no NVIDIADriver was read\n")
    assert "nothing is asked for" not in text


def broken(folder: Path) -> Path:
    scene = SceneFolder()
    scene.wait_behind_driver()
    scene.hold("driver", "nvidia-driver-ctr", {"waiting": {"reason": "ImagePullBackOff"}})
    update(scene, "nvcr.io/nvidia/driver:600.1.1-ubuntu22.04")
    return scene.write(folder)


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    return found


@pytest.mark.parametrize("words", [["explain", "gpu-0"], ["status"], ["doctor"], ["plan"]], ids=" ".join)
def test_documents_are_as_their_schemas_say(tmp_path: Path, words: list[str]) -> None:
    import jsonschema  # see tests/support/jsonschemas.py

    whole, trouble = tmp_path / "whole", tmp_path / "trouble"
    SceneFolder().write(whole)
    codes = []
    for folder in (whole, broken(trouble)):
        answer = CliRunner().invoke(cli, [*words, "--from", str(folder), "--json"], standalone_mode=False)
        assert answer.exception is None, answer.output
        jsonschema.validate(json.loads(answer.output), schema(words[0]))
        codes.append(answer.return_value)
    assert codes == ([0, 0] if words[0] in ("doctor", "plan") else [0, 1])


def test_plan_says_the_same_to_programs_and_to_people(tmp_path: Path) -> None:
    scene = SceneFolder()
    del scene.node["metadata"]["labels"][nodekeys.GPU_PRESENT]
    ours = {"name": "old", "namespace": NAMESPACE, "labels": {MANAGED_BY: MANAGER}}
    scene.others.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": ours, "data": {}})
    folder = str(scene.write(tmp_path / "dump"))

    def say(*words: str) -> str:
        return CliRunner().invoke(cli, ["plan", "--from", folder, *words], standalone_mode=False).output

    actions = json.loads(say("--json"))["actions"]
    assert [one["told"] for one in actions] == say().splitlines()
    assert {(one["action"], one["kind"]) for one in actions} >= {
        ("apply", "DaemonSet"),
        ("delete", "ConfigMap"),
        ("label", "Node"),
        ("status", "ClusterPolicy"),
    }
    (node,) = (one for one in actions if one["kind"] == "Node")
    assert (node["api_version"], node["namespace"], node["name"]) == ("v1", "", "gpu-0")


def test_plan_is_yaml_or_json(tmp_path: Path) -> None:
    folder = str(SceneFolder().write(tmp_path / "dump"))
    answer = CliRunner().invoke(cli, ["plan", "--from", folder, "--json", "--objects"], standalone_mode=False)
    assert isinstance(answer.exception, UsageError)


def test_every_document_has_a_schema_file() -> None:
    assert {path.name.partition(".")[0] for path in SCHEMAS.glob("*.json")} == set(DOCUMENTS)


def test_a_host_driver_needs_no_pool(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.node["metadata"]["labels"][f"{nodekeys.DEPLOY}driver"] = "pre-installed"
    del scene.pods["nvidia-driver-daemonset"]
    assert status(scene, tmp_path)["unserved"] == []
