"""`doctor`: what is wrong with an installation, NVIDIA's own included."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driverforge_core import nodekeys
from driverforge_operator.app.look import installation
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.crd.schema import cluster_policy, nvidia_driver
from driverforge_operator.explain.installation import as_text, examine, rights
from driverforge_operator.ports import Right
from support.samples.scenes import NAMESPACE, SceneFolder


def operator(name: str, namespace: str, program: str, *, available: int = 1) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": {"containers": [{"name": "main", "command": [program]}]}}},
        "status": {"availableReplicas": available},
    }


NVIDIA = operator("gpu-operator", "gpu-operator", "gpu-operator")
OWN = operator("driverforge", "driverforge", "/usr/bin/driverforge-operator")


@pytest.fixture
def scene() -> Iterator[SceneFolder]:
    """An installation of which nothing is wrong."""
    found = SceneFolder()
    found.others += [copy.deepcopy(one) for one in (NVIDIA, cluster_policy(), nvidia_driver())]
    return found


class Asked(Dump):
    """A dump whose user has no right to one thing."""

    def may(self, right: Right) -> bool | None:
        return right.plural != "daemonsets"


def causes(scene: SceneFolder, folder: Path, kind: type[Dump] = Dump) -> list[str]:
    return [one.cause for _, one in examine(installation(kind(scene.write(folder)), NAMESPACE))]


def test_nothing_is_found_where_nothing_is_wrong(scene: SceneFolder, tmp_path: Path) -> None:
    known = installation(Dump(scene.write(tmp_path)), NAMESPACE)
    text = as_text(examine(known), known)
    assert text.startswith("nothing found\n")
    assert "operators: gpu-operator; 2 definitions" in text


def test_two_operators(scene: SceneFolder, tmp_path: Path) -> None:
    scene.others.append(OWN)
    assert causes(scene, tmp_path) == ["two-operators"]


def test_an_operator_without_a_running_pod(scene: SceneFolder, tmp_path: Path) -> None:
    scene.others[0] = operator("gpu-operator", "gpu-operator", "gpu-operator", available=0)
    assert causes(scene, tmp_path) == ["operator-down"]
    scene.others[0] = operator("web", "default", "nginx")
    assert causes(scene, tmp_path) == ["no-operator"]


def test_a_definition_that_an_upgrade_left_as_it_was(scene: SceneFolder, tmp_path: Path) -> None:
    # edgeless/contrast 2599: fields are pruned, and the operator says ready
    (version,) = scene.others[1]["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["driver"]["properties"]["kernelModuleType"], spec["cdi"]
    (found,) = [one for _, one in examine(installation(Dump(scene.write(tmp_path)), NAMESPACE))]
    assert found.cause == "crd-older"
    assert {"spec.cdi", "spec.driver.kernelModuleType"} <= set(found.evidence)
    del scene.others[1]
    assert causes(scene, tmp_path) == ["crd-missing"]


def test_newer_definitions_are_no_trouble(scene: SceneFolder, tmp_path: Path) -> None:
    (version,) = scene.others[1]["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["tomorrow"] = {"type": "string"}
    assert causes(scene, tmp_path) == []


def test_rights_that_the_user_lacks(scene: SceneFolder, tmp_path: Path) -> None:
    found = examine(installation(Asked(scene.write(tmp_path)), NAMESPACE))
    assert [one.cause for _, one in found] == ["rights"]
    assert "patch daemonsets.apps in gpu-operator" in found[0][1].evidence


def test_rights_are_those_that_the_plan_uses() -> None:
    wanted = set(map(str, rights("ns")))
    assert {"patch nodes", "patch nvidiadrivers.nvidia.com/status", "delete configmaps in ns"} <= wanted
    assert {"create events in ns", "patch leases.coordination.k8s.io in ns"} <= wanted
    assert {"create runtimeclasses.node.k8s.io", "list deployments.apps"} <= wanted
    # of its own namespace, and none is written
    secrets = {"list secrets in ns", "watch secrets in ns"}
    assert {one for one in wanted if "secrets" in one} == secrets


@pytest.mark.parametrize(("level", "wrong"), [("baseline", ["psa"]), ("privileged", []), ("", [])])
def test_a_namespace_that_takes_no_privileged_pods(
    scene: SceneFolder, tmp_path: Path, level: str, wrong: list[str]
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level} if level else None
    metadata = {"name": NAMESPACE, "labels": labels}
    scene.others.append({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    assert causes(scene, tmp_path) == wrong


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ('admission webhook "validate.kyverno.svc-fail" denied the request: no', "admission"),
        ('pods "x" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes', "psa"),
        ('pods "x" is forbidden: exceeded quota: gpu, requested: pods=1', "quota"),
        (
            'pods "x" is forbidden: error looking up service account gpu-operator/nvidia-driver',
            "account-missing",
        ),
        ("something else", "admission"),
    ],
)
def test_pods_that_admission_refuses(scene: SceneFolder, tmp_path: Path, message: str, cause: str) -> None:
    scene.warn("DaemonSet", "nvidia-driver-daemonset", "FailedCreate", f"Error creating: {message}")
    assert causes(scene, tmp_path) == [cause]


def test_no_labels_of_node_feature_discovery(scene: SceneFolder, tmp_path: Path) -> None:
    scene.node["metadata"]["labels"] = {}
    assert causes(scene, tmp_path) == ["nfd-missing"]
    scene.node["metadata"]["labels"] = {"feature.node.kubernetes.io/cpu-model.id": "1"}
    assert causes(scene, tmp_path) == ["no-gpu"]


def test_custom_resources_that_are_missing_or_too_many(scene: SceneFolder, tmp_path: Path) -> None:
    second = copy.deepcopy(scene.policy)
    second["metadata"]["name"] = "another"
    scene.others.append(second)
    assert causes(scene, tmp_path) == ["resource-ignored"]
    scene.others.pop()
    scene.policy["kind"] = "Other"
    assert causes(scene, tmp_path) == ["not-asked"]


@pytest.mark.parametrize(
    ("value", "enabled", "wrong"),
    [
        ("vm-pass", True, ["workload-unknown"]),
        ("vm-pass", False, []),
        ("vm-passthrough", True, []),
        ("", True, []),
    ],
)
def test_a_workload_that_is_none(
    scene: SceneFolder, tmp_path: Path, value: str, enabled: bool, wrong: list[str]
) -> None:
    scene.node["metadata"]["labels"][nodekeys.WORKLOAD] = value
    scene.policy["spec"]["sandboxWorkloads"] = {"enabled": enabled}
    assert causes(scene, tmp_path) == wrong


def test_what_was_not_dumped_is_not_judged(tmp_path: Path) -> None:
    assert causes(SceneFolder(), tmp_path) == []
