"""`explain NODE` where there is no pod: what the operator says in the status of a custom resource."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driverforge_core import nodekeys
from driverforge_operator.app.look import explain
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.explain.sentence import document, sentence
from support.samples.explained import nvidia_driver, relabelled, shut, undeployed
from support.samples.scenes import NAMESPACE, NODE, SceneFolder

BUILD = "driverforge build --select 'ubuntu22.04-amd64-595.1-jit' --registry r --push"
MISSING = f"ubuntu22.04: no registry has r/driver:595.1-ubuntu22.04 for amd64: {BUILD}"
NO_CONFIG = "ubuntu22.04: ConfigMap a is not there"


def says(reason: str, message: str, *pools: dict[str, str]) -> dict[str, Any]:
    """A status with an error."""
    error = {"type": "Error", "status": "True", "reason": reason, "message": message}
    return {"state": "notReady", "conditions": [error], "pools": list(pools)}


def pool(
    reason: str, message: str = "", *, system: str = "ubuntu22.04", arch: str = "amd64", kernel: str = ""
) -> dict[str, str]:
    """A pool as a status shows it; without a reason its objects are there."""
    found = {"name": "pool", "os": system, "arch": arch, "kernel": kernel, "reason": reason}
    return {**found, "message": message.removeprefix(f"{system}: ")}


HELD = pool("ImageMissing", MISSING)


@pytest.mark.parametrize(
    ("reason", "message", "told", "command"),
    [
        (
            "ImageMissing",
            MISSING,
            "no registry has r/driver:595.1-ubuntu22.04 for amd64 [image-missing]",
            BUILD,
        ),
        (
            "ConfigurationMissing",
            "ubuntu22.04: ConfigMap repos is not there",
            "ConfigMap repos is not there [configuration-missing]",
            "kubectl describe clusterpolicy cluster-policy",
        ),
        (
            "InvalidSpec",
            "spec.driver.version: Input should be a valid string",
            "spec.driver.version: Input should be a valid string [invalid-spec]",
            "kubectl describe clusterpolicy cluster-policy",
        ),
        (
            "ReconcileFailed",
            "Failed to reconcile state-driver: DaemonSet a/b: no; room: none",
            "Failed to reconcile state-driver: DaemonSet a/b: no; room: none [reconcile-failed]",
            "kubectl describe clusterpolicy cluster-policy",
        ),
    ],
)
def test_the_operators_own_answer_is_what_the_sentence_says(
    tmp_path: Path, reason: str, message: str, told: str, command: str
) -> None:
    scene = undeployed()
    scene.policy["status"] = says(
        reason, message, *([pool(reason, message)] if message[:6] == "ubuntu" else ())
    )
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)
    assert sentence(NODE, gates) == (
        "Node gpu-0 is not ready because the gate 'driver pod' is closed: no DaemonSet brings the driver; "
        f"likely cause: the operator says of ClusterPolicy cluster-policy: {told}; try: {command}"
    )
    found = document(NODE, gates, ())["finding"]
    assert found is not None
    assert (found["command"], found["evidence"]) == (
        command,
        [f"ClusterPolicy cluster-policy: {reason}: {message}"],
    )


def test_a_page_of_the_servers_words_is_cut_for_people_alone(tmp_path: Path) -> None:
    scene = undeployed()
    scene.policy["status"] = says("ReconcileFailed", "no " * 500)
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)
    assert len(sentence(NODE, gates)) < 600
    found = document(NODE, gates, ())["finding"]
    assert found is not None
    assert "no " * 500 in found["told"]


def test_what_is_wrong_with_other_resources_is_no_answer(tmp_path: Path) -> None:
    scene = undeployed()
    younger = copy.deepcopy(scene.policy)
    younger["metadata"] |= {"name": "younger", "creationTimestamp": "2026-01-01T00:00:00Z"}
    younger["status"] = says("Ignored", "cluster-policy is older")
    scene.others += [younger, nvidia_driver("fleet", says("Disabled", "the ClusterPolicy decides"))]
    _, finding = shut(scene, tmp_path)
    assert (finding.cause, finding.evidence) == ("operator-down", ())


def test_what_a_resource_says_that_is_ready_is_no_answer(tmp_path: Path) -> None:
    scene = undeployed()
    ready = {"type": "Ready", "status": "True", "reason": "Reconciled", "message": "rolled out"}
    scene.policy["status"] = {"state": "ready", "conditions": [ready]}
    _, finding = shut(scene, tmp_path)
    assert (finding.cause, finding.evidence) == ("operator-down", ())


def crd_driven(*drivers: dict[str, Any]) -> SceneFolder:
    """A node without a driver, where NVIDIADrivers decide."""
    scene = undeployed()
    scene.policy["spec"]["driver"] = {"enabled": True, "useNvidiaDriverCRD": True}
    scene.others += drivers
    return scene


@pytest.mark.parametrize("by", ["owner", "selector", "no selector", "default"])
def test_of_several_nvidiadrivers_the_one_that_claims_the_node_answers(tmp_path: Path, by: str) -> None:
    scene = crd_driven()
    scene.policy["status"] = says("OperandNotReady", "states not ready: [state-operator-validation]")
    if by == "owner":
        scene.node["metadata"]["labels"][nodekeys.DRIVER_OWNER] = "mine"
    mine = {
        "owner": {"nodeSelector": {"pool": "was"}},
        "selector": {"nodeSelector": {nodekeys.OS_ID: "ubuntu"}},
        "no selector": {},
        "default": {"default": True},
    }[by]
    broken = says("InvalidSpec", "spec.version: of another")
    scene.others += [
        nvidia_driver("another", broken, nodeSelector={"pool": "b"}),
        nvidia_driver("mine", says("ImageMissing", MISSING, HELD), **mine),
        nvidia_driver(
            "spare", broken, **({"nodeSelector": {"a": "b"}} if by == "default" else {"default": True})
        ),
    ]
    _, finding = shut(scene, tmp_path)
    assert (finding.cause, finding.command) == ("image-missing", BUILD)
    assert finding.evidence == (f"NVIDIADriver mine: ImageMissing: {MISSING}",)


@pytest.mark.parametrize(
    "selector",
    [{"pool": ["a", "b"]}, {"pool": {"a": "b"}}, {"pool": 1}, ["pool"], "pool"],
    ids=repr,
)
def test_a_driver_whose_selector_cannot_be_read_answers_where_nobody_else_does(
    tmp_path: Path, selector: Any
) -> None:
    words = "spec.nodeSelector.pool: Input should be a valid string"
    broken = nvidia_driver("broken", says("InvalidSpec", words), nodeSelector=selector)
    (tmp_path / "alone").mkdir()
    _, finding = shut(crd_driven(broken), tmp_path / "alone")
    assert (finding.cause, finding.evidence) == (
        "invalid-spec",
        (f"NVIDIADriver broken: InvalidSpec: {words}",),
    )
    for number, claim in enumerate(({"nodeSelector": {nodekeys.OS_ID: "ubuntu"}}, {"default": True})):
        theirs = nvidia_driver("mine", says("ImageMissing", MISSING, HELD), **claim)
        (folder := tmp_path / str(number)).mkdir()
        assert shut(crd_driven(broken, theirs), folder)[1].cause == "image-missing"


def test_a_driver_that_is_rolled_out_elsewhere_holds_nothing_back(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.policy["spec"]["driver"] = {"enabled": True, "useNvidiaDriverCRD": True}
    scene.others.append(nvidia_driver("fleet", says("DriverNotReady", "0 of 1 pods are ready"), default=True))
    del scene.pods["nvidia-driver-daemonset"]
    template = scene.daemonsets["nvidia-driver-daemonset"]["spec"]["template"]
    template["spec"]["nodeSelector"][nodekeys.OS_ID] = "sles"
    assert shut(scene, tmp_path)[1].cause == "not-selected"


OTHERS = MISSING.replace("ubuntu22.04", "rocky9")
ELSEWHERE = pool("ImageMissing", OTHERS, system="rocky9")
ARM = MISSING.replace("amd64", "arm64")
HELD_ARM = pool("ImageMissing", ARM, arch="arm64")
KERNEL = "5.15.0-131-generic"


def of_kernel(kernel: str, text: str = MISSING) -> str:
    return text.replace("595.1", f"595-{kernel}")


def held_kernel(kernel: str) -> dict[str, str]:
    return pool("ImageMissing", of_kernel(kernel), kernel=kernel)


EITHER = f"{of_kernel(KERNEL)}; or, to compile on the node: {MISSING.partition(': ')[2]}"


def without_driver(*, others: bool) -> SceneFolder:
    """A node that has no driver DaemonSet, where there are some of other nodes or none."""
    if not others:
        return undeployed()
    scene = SceneFolder()
    del scene.pods["nvidia-driver-daemonset"]
    template = scene.daemonsets["nvidia-driver-daemonset"]["spec"]["template"]
    template["spec"]["nodeSelector"][nodekeys.OS_ID] = "sles"
    return scene


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize(
    ("message", "pools", "command"),
    [
        (f"{OTHERS}; {MISSING}", [ELSEWHERE, HELD], BUILD),
        (f"{ARM}; {MISSING}", [HELD_ARM, HELD], BUILD),
        (
            "; ".join(of_kernel(f"5.15.0-{number}-generic") for number in (9, 131, 99)),
            [held_kernel(f"5.15.0-{number}-generic") for number in (9, 131, 99)],
            of_kernel(KERNEL, BUILD),
        ),
        # pools that are there, and those of another reason, have no words in it
        (
            f"{ARM}; {MISSING}",
            [
                pool("", kernel=KERNEL, arch="arm64"),
                HELD_ARM,
                pool("ConfigurationMissing", "ConfigMap a is not there", arch="riscv64"),
                HELD,
            ],
            BUILD,
        ),
        # either image would do
        (
            EITHER,
            [pool("ImageMissing", EITHER, kernel=KERNEL)],
            of_kernel(KERNEL, BUILD),
        ),
        # what is rejected beside it does not hide it, wherever the operator says so
        (f"{MISSING}; Failed to reconcile state-dcgm: Service a/b: 403 no", [HELD], BUILD),
        (f"Failed to reconcile state-dcgm: Service a/b: 403 no; {MISSING}", [HELD], BUILD),
    ],
)
def test_a_pool_that_is_held_back_is_told_with_its_own_command(
    tmp_path: Path, message: str, pools: list[dict[str, str]], command: str, *, others: bool
) -> None:
    scene = without_driver(others=others)
    reason = "ReconcileFailed" if message.startswith("Failed") else "ImageMissing"
    scene.policy["status"] = says(reason, message, *pools)
    _, finding = shut(scene, tmp_path)
    assert (finding.cause, finding.command) == ("image-missing", command)
    assert finding.told.startswith("the operator says of ClusterPolicy cluster-policy: no registry has")
    assert "state-dcgm" not in finding.told
    assert finding.evidence == (f"ClusterPolicy cluster-policy: {reason}: {message}",)


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize(
    ("reason", "message", "pools"),
    [
        ("ImageMissing", OTHERS, [ELSEWHERE, pool("")]),
        ("ImageMissing", ARM, [HELD_ARM, pool("NotRolledOut")]),
        (
            "ImageMissing",
            of_kernel("5.15.0-99-generic"),
            [pool("", kernel=KERNEL), held_kernel("5.15.0-99-generic")],
        ),
        # a status of before the node came
        ("ImageMissing", ARM, [HELD_ARM]),
        # of an operator that says nothing of pools
        ("ImageMissing", MISSING, []),
        ("ReconcileFailed", "Failed to reconcile state-dcgm: Service a/b: 403 no", []),
        ("ReconcileFailed", "Failed to reconcile labels of nodes: Node gpu-00 and Node b: 403 no", []),
        ("ReconcileFailed", f"Failed to reconcile state-dcgm: Service a/b: no; {OTHERS}", [ELSEWHERE]),
        # of a driver's spec that nodes of another system cannot have
        (
            "InvalidSpec",
            "rocky9: spec.version: no",
            [pool("InvalidSpec", "spec.version: no", system="rocky9")],
        ),
    ],
)
def test_what_is_wrong_elsewhere_is_shown_and_is_no_answer(
    tmp_path: Path, reason: str, message: str, pools: list[dict[str, str]], *, others: bool
) -> None:
    scene = without_driver(others=others)
    scene.policy["status"] = says(reason, message, *pools)
    _, finding = shut(scene, tmp_path)
    assert finding.cause == ("not-selected" if others else "operator-down")
    assert "driverforge build" not in finding.command
    assert f"ClusterPolicy cluster-policy: {reason}: {message}" in finding.evidence


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize(
    ("told", "beside"),
    [
        ("Failed to reconcile state-driver: DaemonSet a/b: 403 no", "state-dcgm: Service a/b"),
        ("Failed to reconcile labels of nodes: Node a and Node gpu-0 and 3 more: 403 no", "state-dcgm: A b"),
    ],
)
def test_of_what_is_rejected_the_nodes_own_part_is_told(
    tmp_path: Path, told: str, beside: str, *, others: bool
) -> None:
    scene = without_driver(others=others)
    message = f"Failed to reconcile {beside}: 409 no; {told}"
    scene.policy["status"] = says("ReconcileFailed", message, pool(""))
    _, finding = shut(scene, tmp_path)
    assert finding.cause == "reconcile-failed"
    assert finding.told == f"the operator says of ClusterPolicy cluster-policy: {told}"
    # and that, too, where an image is missing elsewhere, wherever that is told
    for reason, words in (
        ("ReconcileFailed", f"{message}; {OTHERS}"),
        ("ImageMissing", f"{OTHERS}; {told}"),
    ):
        scene.policy["status"] = says(reason, words, ELSEWHERE)
        assert shut(scene, tmp_path)[1] == replace(
            finding, evidence=(f"ClusterPolicy cluster-policy: {reason}: {words}",)
        )


def test_a_held_pool_without_words_is_told_with_its_reason(tmp_path: Path) -> None:
    scene = undeployed()
    scene.policy["status"] = says(
        "ReconcileFailed", "Failed to reconcile state-driver: A b: no", pool("ImageMissing")
    )
    _, finding = shut(scene, tmp_path)
    assert finding.cause == "image-missing"
    assert finding.told == "the operator says of ClusterPolicy cluster-policy: pool pool: ImageMissing"
    assert finding.command == "kubectl describe clusterpolicy cluster-policy"


def test_pods_that_are_waited_for_hold_no_daemonset_back(tmp_path: Path) -> None:
    scene = without_driver(others=True)
    scene.policy["status"] = says("OperandNotReady", "states not ready: [state-driver]", pool(""))
    assert shut(scene, tmp_path)[1].cause == "not-selected"
    # where there is none at all it is what is known
    scene = without_driver(others=False)
    compiles = f"rocky9: nodes compile, since {OTHERS.partition(': ')[2]}"
    elsewhere = pool("", compiles, system="rocky9")
    scene.policy["status"] = says(
        "OperandNotReady", f"states not ready: [state-driver]; {compiles}", elsewhere
    )
    _, finding = shut(scene, tmp_path)
    assert (finding.cause, finding.told.rpartition(": ")[2]) == ("operand-not-ready", "[state-driver]")
    assert finding.command == "kubectl describe clusterpolicy cluster-policy"


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (says("ImageMissing", MISSING, HELD), "operator-down"),
        (says("ConfigurationMissing", NO_CONFIG, pool("ConfigurationMissing", NO_CONFIG)), "operator-down"),
        (says("ReconcileFailed", "Failed to reconcile state-driver: DaemonSet a/b: no"), "operator-down"),
        (
            says("ReconcileFailed", "Failed to reconcile state-container-toolkit: DaemonSet a/b: no"),
            "reconcile-failed",
        ),
        (says("InvalidSpec", "spec.toolkit.image: no"), "invalid-spec"),
        (says("OperandNotReady", "states not ready: [state-container-toolkit]: a"), "operand-not-ready"),
    ],
)
def test_a_drivers_image_is_no_reason_for_a_missing_toolkit(
    tmp_path: Path, status: dict[str, Any], cause: str
) -> None:
    scene = SceneFolder()
    name = "nvidia-container-toolkit-daemonset"
    del scene.pods[name], scene.daemonsets[name]
    scene.policy["status"] = status
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("toolkit", cause)
    assert "driverforge build" not in finding.command
    (evidence,) = finding.evidence
    assert status["conditions"][0]["message"] in evidence


@pytest.mark.parametrize("policy", [True, False])
def test_labels_that_are_rejected_are_shown_with_the_servers_words(tmp_path: Path, *, policy: bool) -> None:
    scene = relabelled(**{nodekeys.GPU_PRESENT: None})
    rejected = says("ReconcileFailed", "Failed to reconcile labels of nodes: Node gpu-0: 403 no right")
    if policy:
        scene.policy["status"] = rejected
    else:
        scene.policy = nvidia_driver("fleet", rejected, nodeSelector={"other": "nodes"})
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("gpu.present", "operator-down")
    (line,) = finding.evidence
    assert line.endswith("ReconcileFailed: Failed to reconcile labels of nodes: Node gpu-0: 403 no right")


def test_switches_that_are_rejected_are_shown_with_the_servers_words(tmp_path: Path) -> None:
    scene = SceneFolder()
    switches = [key for key in scene.node["metadata"]["labels"] if key.startswith(nodekeys.DEPLOY)]
    scene = relabelled(**dict.fromkeys(switches))
    scene.policy["status"] = says("ReconcileFailed", "Failed to reconcile labels of nodes: 403 no right")
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("deploy labels", "operator-down")
    (line,) = finding.evidence
    assert line.endswith("ReconcileFailed: Failed to reconcile labels of nodes: 403 no right")
