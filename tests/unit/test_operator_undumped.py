"""Dumps by hand: what is in them is read, and what nobody dumped is neither judged nor blamed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from driverforge_core import nodekeys
from driverforge_operator.app.look import explain, installation
from driverforge_operator.cli import cli
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.explain.gate import GateState
from driverforge_operator.explain.gates import closed
from driverforge_operator.explain.installation import as_text, examine
from driverforge_operator.explain.sentence import sentence, table
from support.samples.scenes import NAMESPACE, NODE, SceneFolder

CRASHED = {"waiting": {"reason": "CrashLoopBackOff"}}
EXITED = {"lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}, "restartCount": 5}
MANAGER = "k8s-driver-manager"
STAYS = """\
level=info msg=starting
error: another driver is wanted than the loaded one (535.261.03)
  | /run/nvidia/nvidia-driver.state: 1; wanted: 2
  | in use by python3 (process 812, pod 6f0f): /dev/nvidia-uvm
  next: kubectl drain gpu-0 --ignore-daemonsets, then reboot it
"""


def told(scene: SceneFolder, folder: Path, node: str = NODE) -> str:
    return sentence(node, explain(Dump(scene.write(folder)), NAMESPACE, node)[1])


def stuck(log: str, *, previous: bool = False) -> SceneFolder:
    """A driver manager in back-off, with a log of `kubectl logs`."""
    scene = SceneFolder()
    scene.wait_behind_driver()
    scene.hold("driver", MANAGER, CRASHED, **EXITED)
    scene.log("driver", MANAGER, log, previous=previous)
    return scene


def dumped(scene: SceneFolder, folder: Path, *without: str) -> Path:
    """A dump of `kubectl get -o yaml`, where some kinds were not asked for."""
    folder.mkdir(parents=True)
    items = [
        one
        for one in scene.documents
        if one["kind"] not in without and not one["kind"].endswith("List") and one["kind"] != "Other"
    ]
    document = {"apiVersion": "v1", "kind": "List", "items": items}
    (folder / "cluster.yaml").write_text(yaml.dump(document, Dumper=yaml.CSafeDumper))
    return folder


def test_the_log_of_a_container_in_back_off_is_read_as_kubectl_logs_saved_it(tmp_path: Path) -> None:
    assert "[driver-stays]" in told(stuck(STAYS), tmp_path / "plain")
    both = stuck(STAYS, previous=True)
    both.log("driver", MANAGER, "another thing")
    assert "[driver-stays]" in told(both, tmp_path / "both")


def test_a_snapshot_of_a_dump_keeps_a_log_under_its_own_name(tmp_path: Path) -> None:
    source, target = stuck(STAYS).write(tmp_path / "dump"), tmp_path / "snap.tgz"
    answer = CliRunner().invoke(cli, ["snapshot", str(target), "--from", str(source)], standalone_mode=False)
    assert answer.exception is None
    assert "[driver-stays]" in sentence(NODE, explain(Dump(target), NAMESPACE, NODE)[1])
    assert sum(name.endswith("_previous.log") for name in Dump(target)._logs) == 0


def test_an_error_of_our_programs_is_quoted_and_its_details_are_evidence(tmp_path: Path) -> None:
    sight, gates = explain(Dump(stuck(STAYS).write(tmp_path)), NAMESPACE, NODE)
    text = table(NODE, gates, sight.unread)
    assert 'ends with "error: another driver is wanted than the loaded one (535.261.03)"' in text
    assert "  | in use by python3 (process 812, pod 6f0f): /dev/nvidia-uvm\n" in text
    assert text.count("kubectl drain") == 1
    assert "kubectl uncordon gpu-0" in text


def test_a_log_that_ends_in_other_words_is_quoted_by_its_last_line(tmp_path: Path) -> None:
    scene = stuck("error: an earlier one\n  | of no concern\nlast words\n  | of a table\n")
    gate = closed(explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)[1])
    assert gate is not None
    assert gate.finding is not None
    assert gate.finding.last == "| of a table"
    assert "of no concern" not in gate.finding.evidence


def test_cause_and_command_have_lines_of_their_own_for_people(tmp_path: Path) -> None:
    _, gates = explain(Dump(stuck(STAYS).write(tmp_path)), NAMESPACE, NODE)
    *_, seen, cause, command = table(NODE, gates, ()).splitlines()
    assert seen.startswith("Node gpu-0 is not ready because")
    assert (cause[:16], command[:7]) == ("  likely cause: ", "  try: ")
    assert "\n" not in sentence(NODE, gates)


def test_a_driver_manager_that_runs_is_not_to_be_deleted(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.wait_behind_driver()
    scene.hold("driver", MANAGER, {"running": {}})
    text = told(scene, tmp_path)
    assert "[driver-manager-waits]" in text
    assert "validations" not in text
    assert "delete" not in text


PULL = (
    'Failed to pull image "r.example/nvidia/driver:580.95.05-ubuntu22.04": failed to do request: Head "…": '
)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            ("[registry-certificate]", "crictl pull r.example/nvidia/driver:580", "CA"),
        ),
        ("dial tcp 10.0.0.1:443: i/o timeout", ("[registry-unreachable]", "crictl pull r.example/", "proxy")),
        ("401 Unauthorized", ("[pull-denied]", "create secret docker-registry", "imagePullSecrets: [")),
        (
            "not found",
            (
                "driverforge build --select 'ubuntu22.04-amd64-580.95.05-jit'",
                " --registry r.example/nvidia --push",
            ),
        ),
    ],
)
def test_an_image_that_is_not_pulled_is_answered_for_the_hour_of_need(
    tmp_path: Path, words: str, shown: Sequence[str]
) -> None:
    scene = SceneFolder()
    scene.wait_behind_driver()
    scene.pod("driver")["spec"]["containers"][0]["image"] = "r.example/nvidia/driver:580.95.05-ubuntu22.04"
    waiting = {"reason": "ImagePullBackOff", "message": f"{PULL}{words}"}
    scene.hold("driver", "nvidia-driver-ctr", {"waiting": waiting})
    text = told(scene, tmp_path)
    assert [one for one in shown if one not in text] == []
    assert "--help" not in text


def test_the_doctor_judges_nothing_that_is_not_in_the_dump(tmp_path: Path) -> None:
    known = installation(Dump(dumped(SceneFolder(), tmp_path / "dump")), NAMESPACE)
    text = as_text(found := examine(known), known)
    assert found == []
    assert text.startswith("nothing found in what the dump has\n")
    for words in (
        "operators: no Deployment is in the dump, and none is judged",
        "definitions: not in the dump, and not judged",
        "namespace gpu-operator: not in the dump, and not judged",
        "rights: a dump has none, and they are not judged",
        "not read: deployments: the dump has none, and the cluster may have some",
    ):
        assert words in text
    assert "operators: none" not in text


def test_the_commands_of_the_guide_dump_all_that_the_doctor_judges() -> None:
    page = (Path(__file__).parents[2] / "docs/operator-explain.md").read_text()
    (line,) = (one for one in page.splitlines() if "kubectl get nodes," in one and "-A -o yaml" in one)
    kinds = set(line.split("kubectl get ", 1)[1].split()[0].split(","))
    assert {"deployments", "namespaces", "customresourcedefinitions", "events", "pods"} <= kinds
    assert "NAMESPACE_POD_CONTAINER_previous.log" in page


def test_an_empty_list_of_a_kind_says_that_there_is_none(tmp_path: Path) -> None:
    folder = dumped(SceneFolder(), tmp_path / "dump")
    empty = {"apiVersion": "apps/v1", "kind": "DeploymentList", "metadata": {}, "items": []}
    (folder / "deployments.json").write_text(yaml.safe_dump(empty))
    assert [one.cause for _, one in examine(installation(Dump(folder), NAMESPACE))] == ["no-operator"]


@pytest.mark.parametrize(
    ("without", "gate", "words"),
    [
        (["Pod"], "driver pod", "the dump has no pods"),
        (["Pod", "DaemonSet"], "driver pod", "the dump has no pods"),
        (["ClusterPolicy", "DaemonSet"], "gpu.present", "the dump has no custom resources"),
    ],
)
def test_what_was_not_dumped_is_not_said_to_be_missing(
    tmp_path: Path, without: list[str], gate: str, words: str
) -> None:
    scene = SceneFolder()
    scene.node["status"].update(capacity={}, allocatable={})
    sight, gates = explain(Dump(dumped(scene, tmp_path / "dump", *without)), NAMESPACE, NODE)
    shut = closed(gates)
    assert shut is not None
    assert (shut.name, shut.state) == (gate, GateState.UNREAD)
    text = sentence(NODE, gates)
    assert text == f"Nobody can say whether node gpu-0 is ready: at the gate '{gate}', {words}."
    assert [one for one in without if one.lower()[:-1] not in "\n".join(sight.unread)] == []


def test_a_driver_that_is_not_there_is_not_blamed_on_daemonsets_that_nobody_dumped(tmp_path: Path) -> None:
    scene = SceneFolder()
    del scene.pods["nvidia-driver-daemonset"]
    _, gates = explain(Dump(dumped(scene, tmp_path / "dump", "DaemonSet")), NAMESPACE, NODE)
    assert "the dump has no DaemonSets" in sentence(NODE, gates)


def test_switches_that_are_paused_are_not_to_be_put_back_where_no_pods_were_dumped(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.node["metadata"]["labels"][f"{nodekeys.DEPLOY}device-plugin"] = "paused-for-driver-upgrade"
    _, gates = explain(Dump(dumped(scene, tmp_path / "dump", "Pod")), NAMESPACE, NODE)
    assert "kubectl label" not in sentence(NODE, gates)


def test_one_kind_of_custom_resources_may_do_without_the_other(tmp_path: Path) -> None:
    scene = SceneFolder()
    sight, _ = explain(Dump(dumped(scene, tmp_path / "one")), NAMESPACE, NODE)
    assert not any("nvidiadrivers" in one for one in sight.unread)
    scene.policy["spec"]["driver"] = {"enabled": True, "useNvidiaDriverCRD": True}
    sight, _ = explain(Dump(dumped(scene, tmp_path / "two")), NAMESPACE, NODE)
    assert any("nvidiadrivers" in one for one in sight.unread)


def test_a_snapshot_says_of_what_there_is_none(tmp_path: Path) -> None:
    source, target = SceneFolder().write(tmp_path / "dump"), tmp_path / "snap"
    CliRunner().invoke(cli, ["snapshot", str(target), "--from", str(source)], standalone_mode=False)
    sight, _ = explain(Dump(target), NAMESPACE, NODE)
    assert sight.unread == ()
    # of what was not in the dump itself nothing is said
    assert not (target / "deployments.yaml").exists()


def test_a_node_that_the_operator_has_not_labelled_yet(tmp_path: Path) -> None:
    scene = SceneFolder()
    del scene.pods["nvidia-driver-daemonset"]
    selector = scene.daemonsets["nvidia-driver-daemonset"]["spec"]["template"]["spec"]["nodeSelector"]
    selector[nodekeys.DRIVER_OWNER] = "gpus"
    assert "has not labelled this node yet" in told(scene, tmp_path / "owner")
    selector[nodekeys.KERNEL] = "5.15.0-99-generic"
    text = told(scene, tmp_path / "kernel")
    assert f"wants {nodekeys.KERNEL}=5.15.0-99-generic" in text
    assert "[not-selected]" in text


def cpu() -> SceneFolder:
    scene = SceneFolder()
    labels = {f"{nodekeys.FEATURE}kernel-version.full": "5.15.0-161-generic"}
    scene.nodes["cpu-0"] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "cpu-0", "labels": labels},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "32"}},
    }
    return scene


def test_a_node_without_a_gpu_has_nothing_to_do(tmp_path: Path) -> None:
    source = cpu().write(tmp_path / "dump")
    answer = CliRunner().invoke(cli, ["explain", "cpu-0", "--from", str(source)], standalone_mode=False)
    assert answer.return_value == 0
    assert answer.output.endswith("\nNode cpu-0 has no GPU: nothing to do.\n")


@pytest.mark.parametrize(
    ("where", "key", "value"),
    [
        ("labels", nodekeys.GPU_PRESENT, "true"),
        ("labels", f"{nodekeys.DEPLOY}driver", "true"),
        ("capacity", "nvidia.com/gpu", "8"),
    ],
)
def test_a_node_that_claims_a_gpu_which_nobody_sees_is_not_ready(
    tmp_path: Path, where: str, key: str, value: str
) -> None:
    scene = cpu()
    node: dict[str, Any] = scene.nodes["cpu-0"]
    (node["metadata"]["labels"] if where == "labels" else node["status"]["capacity"])[key] = value
    assert "[no-gpu]" in told(scene, tmp_path, "cpu-0")


def test_a_node_without_a_gpu_whose_kubelet_is_down_is_told(tmp_path: Path) -> None:
    scene = cpu()
    scene.nodes["cpu-0"]["status"]["conditions"] = [{"type": "Ready", "status": "False", "reason": "Down"}]
    assert "[kubelet]" in told(scene, tmp_path, "cpu-0")
