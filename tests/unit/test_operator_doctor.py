"""`doctor`: what is wrong with an installation, NVIDIA's own included."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from driverforge_core import nodekeys
from driverforge_core.errors import NotPermitted
from driverforge_operator.app.look import installation
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.crd.schema import cluster_policy, nvidia_driver
from driverforge_operator.explain.installation import as_text, examine, rights
from driverforge_operator.ports import Right
from support.samples.scenes import NAMESPACE, SceneFolder

KUSTOMIZE = Path(__file__).parents[2] / "charts/driverforge/kustomize/driverforge.yaml"


def operator(name: str, namespace: str, program: str, *, available: int = 1) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": {"containers": [{"name": "main", "command": [program]}]}}},
        "status": {"availableReplicas": available},
    }


NVIDIA = operator("gpu-operator", "gpu-operator", "gpu-operator")
BY_HAND = operator("gpus", "elsewhere", "/usr/bin/driverforge-operator")


def ours() -> dict[str, Any]:
    """Our Deployment as the chart makes it, with a pod that runs."""
    objects = yaml.load_all(KUSTOMIZE.read_text(), Loader=yaml.CSafeLoader)
    (found,) = [one for one in objects if one["kind"] == "Deployment"]
    return {**found, "status": {"availableReplicas": 1}}


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


def may_not_read(*plurals: str) -> type[Dump]:
    """A live cluster whose user has the operator's rights, and may not list some other kinds."""

    class Narrow(Dump):
        def everywhere(self, kind: Any, *, fields: str = "") -> Any:
            if kind.plural in plurals:
                raise NotPermitted("the API server answers 403 Forbidden", details=[kind.plural])
            return super().everywhere(kind, fields=fields)

        def may(self, right: Right) -> bool | None:
            return True

    return Narrow


def causes(scene: SceneFolder, folder: Path, kind: type[Dump] = Dump) -> list[str]:
    return [one.cause for _, one in examine(installation(kind(scene.write(folder)), NAMESPACE))]


def test_nothing_is_found_where_nothing_is_wrong(scene: SceneFolder, tmp_path: Path) -> None:
    known = installation(Dump(scene.write(tmp_path)), NAMESPACE)
    text = as_text(examine(known), known)
    assert text.startswith("nothing found in what the dump has\n")
    assert "operators: gpu-operator; 2 definitions" in text


@pytest.mark.parametrize(
    ("kind", "name", "message", "cause"),
    [
        (  # aicr#915
            "ReplicaSet",
            "gpu-operator-7d9",
            "Error creating: insufficient quota to match these scopes: [{PriorityClass In []}]",
            "quota-missing",
        ),
        (  # gpu-operator#1519
            "Pod",
            "gpu-operator-7d9-x7k2p",
            'Failed to pull image "harbor.site/op:1": x509: certificate signed by unknown authority',
            "registry-certificate",
        ),
        ("Pod", "gpu-operator-7d9-x7k2p", 'Failed to pull image "a": not found', "operand-image-missing"),
        ("Pod", "gpu-operator-7d9-x7k2p", "nobody has seen this", "operator-down"),
        ("Pod", "gpu-operator-node-feature-discovery-worker-a", "violates PodSecurity", "operator-down"),
    ],
)
def test_why_an_operator_has_no_pod(
    scene: SceneFolder, tmp_path: Path, kind: str, name: str, message: str, cause: str
) -> None:
    scene.others[0] = operator("gpu-operator", "gpu-operator", "gpu-operator", available=0)
    scene.warn(kind, name, "Failed", message)
    assert causes(scene, tmp_path) == [cause]


@pytest.mark.parametrize("own", [ours(), BY_HAND], ids=["the chart's", "by hand"])
def test_two_operators(scene: SceneFolder, tmp_path: Path, own: dict[str, Any]) -> None:
    scene.others.append(own)
    assert causes(scene, tmp_path) == ["two-operators"]


def test_our_operator_is_seen_as_the_chart_deploys_it(scene: SceneFolder, tmp_path: Path) -> None:
    scene.others[0] = ours()
    known = installation(Dump(scene.write(tmp_path)), NAMESPACE)
    assert examine(known) == []
    assert "operators: driverforge-operator;" in as_text([], known)


@pytest.mark.parametrize(
    ("plural", "gone", "seen"),
    [
        ("customresourcedefinitions", "CustomResourceDefinition", "; definitions may not be read;"),
        ("deployments", "Deployment", "; operators: those of other namespaces may not be read;"),
        ("nodes", "Node", "looked at: nodes may not be read;"),
        ("clusterpolicies", "ClusterPolicy", "looked at: "),
        ("namespaces", "Namespace", "; namespace gpu-operator may not be read;"),
    ],
)
def test_what_may_not_be_read_is_not_said_to_be_missing(
    scene: SceneFolder, tmp_path: Path, plural: str, gone: str, seen: str
) -> None:
    """As in the operator's pod, whose account may not list definitions."""
    scene.others = [one for one in scene.others if one["kind"] != gone]
    if scene.policy["kind"] == gone:
        scene.policy["kind"] = "Other"
    if gone == "Node":
        scene.nodes = {}
    known = installation(may_not_read(plural)(scene.write(tmp_path)), NAMESPACE)
    text = as_text(found := examine(known), known)
    assert found == []
    assert seen in text
    assert f"\n\nnot read: {plural}" in text
    assert "the API server answers 403 Forbidden" in text


def test_what_of_all_deployments_is_ours_is_judged_where_no_others_may_be_read(
    scene: SceneFolder, tmp_path: Path
) -> None:
    scene.others[0] = {**ours(), "status": {"availableReplicas": 0}}
    assert causes(scene, tmp_path, may_not_read("deployments")) == ["operator-down"]


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


def test_the_doctor_in_the_operators_pod_is_asked_by_the_deployments_name(
    scene: SceneFolder, tmp_path: Path
) -> None:
    def asked(own: dict[str, Any]) -> str:
        scene.others[0] = own
        (found,) = [one for _, one in examine(installation(Asked(scene.write(tmp_path)), NAMESPACE))]
        return found.command.partition(" -- ")[0]

    chart = ours()["metadata"]["name"]
    assert asked(ours()) == asked(NVIDIA) == f"kubectl exec -n gpu-operator deploy/{chart}"
    assert asked(BY_HAND) == "kubectl exec -n elsewhere deploy/gpus"
    page = (Path(__file__).parents[2] / "docs/operator-explain.md").read_text()
    assert f"{asked(ours())} -- driverforge-operator doctor" in page


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


def test_nodes_with_an_unknown_workload_are_counted_in_english(scene: SceneFolder, tmp_path: Path) -> None:
    scene.policy["spec"]["sandboxWorkloads"] = {"enabled": True}
    scene.node["metadata"]["labels"][nodekeys.WORKLOAD] = "vm-pass"

    def told(folder: Path) -> str:
        known = installation(Dump(scene.write(folder)), NAMESPACE)
        ((_, found),) = examine(known)
        return f"{found.what}; {as_text([], known)}"

    one = told(tmp_path / "one")
    assert one.startswith("1 node has an unknown nvidia.com/gpu.workload.config; ")
    assert "looked at: 1 node, 1 with a GPU;" in one
    other = copy.deepcopy(scene.node)
    other["metadata"]["name"] = "gpu-1"
    scene.nodes["gpu-1"] = other
    two = told(tmp_path / "two")
    assert two.startswith("2 nodes have an unknown nvidia.com/gpu.workload.config; ")
    assert "looked at: 2 nodes, 2 with a GPU;" in two


def test_what_was_not_dumped_is_not_judged(tmp_path: Path) -> None:
    assert causes(SceneFolder(), tmp_path) == []
