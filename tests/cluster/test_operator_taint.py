"""The ready taint on a real API server, with a validator's pod whose kubelet this test is."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driverforge_core import nodekeys
from support.cluster.kubernetes import Api
from support.cluster.operator import NAMESPACE, ROOT, add_node, ground, merge, operator
from support.process import run, until
from support.samples.operatorcases import policy_spec

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)

NODE = "/api/v1/nodes/op-gpu"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/nvidia-operator-validator"
ANOTHER = {"key": "site.example/mine", "effect": "NoSchedule"}
MORNING, NOON = "2026-01-01T08:00:00Z", "2026-01-01T12:00:00Z"


@pytest.fixture
def cluster(api: Api) -> Iterator[Api]:
    with ground(api):
        add_node(api, "op-gpu", os_id="ubuntu", version="22.04")
        merge(api, NODE, {"spec": {"taints": [ANOTHER]}})
        boot(api, "first")
        policy = {
            "apiVersion": "nvidia.com/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": "cluster-policy", "annotations": {nodekeys.READY_TAINT: "true"}},
            "spec": policy_spec("default"),
        }
        answer = api.apply(json.dumps(policy))
        assert answer.ok, answer.message
        yield api


def boot(api: Api, name: str) -> None:
    merge(api, f"{NODE}/status", {"status": {"nodeInfo": {"bootID": name}}})


def taints(api: Api) -> set[str]:
    found = api.request("GET", NODE).body["spec"].get("taints", ())
    return {one["key"] for one in found} - {"node.kubernetes.io/not-ready"}


def add_validator(api: Api) -> None:
    limits: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "validator", "labels": {"app": "nvidia-operator-validator"}},
        "spec": {
            "nodeName": "op-gpu",
            "serviceAccountName": ACCOUNT.rpartition("/")[2],
            "containers": [{"name": "main", "image": "r.example/validator", "securityContext": limits}],
        },
    }
    answer = api.request("POST", PODS, json.dumps(document))
    assert answer.ok, answer.message


def ready(api: Api, since: str) -> None:
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    merge(api, f"{PODS}/validator/status", {"status": {"conditions": [condition]}})


def test_it_is_there_until_a_node_is_validated_and_again_after_a_boot(cluster: Api, tmp_path: Path) -> None:
    tainted = {nodekeys.NOT_READY, ANOTHER["key"]}
    with operator(cluster, tmp_path) as log:
        until(lambda: taints(cluster) == tainted, "a taint beside the other one", log=log)
        until(lambda: cluster.request("GET", ACCOUNT).ok, "the validator's account", log=log)
        add_validator(cluster)
        ready(cluster, MORNING)
        until(lambda: taints(cluster) == {ANOTHER["key"]}, "validated", log=log)
        boot(cluster, "second")
        until(lambda: taints(cluster) == tainted, "on again", log=log)
        ready(cluster, NOON)
        until(lambda: taints(cluster) == {ANOTHER["key"]}, "validated again", log=log)
        boot(cluster, "third")
        until(lambda: taints(cluster) == tainted, "on again", log=log)


def test_it_goes_with_the_operator(cluster: Api, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as log:
        until(lambda: nodekeys.NOT_READY in taints(cluster), "a taint", log=log)
    environment = {
        "KUBECONFIG": str(tmp_path / "operator.kubeconfig"),
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": str(ROOT / "entrypoints"),
    }
    words = ("cleanup", "--namespace", NAMESPACE)
    told = run(sys.executable, "-m", "driverforge_operator", *words, env=environment).stdout.splitlines()
    assert f"node op-gpu: removed the taint {nodekeys.NOT_READY}" in told
    assert taints(cluster) == {ANOTHER["key"]}
