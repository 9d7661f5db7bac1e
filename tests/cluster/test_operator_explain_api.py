"""The reading commands against a real API server: what a live cluster tells is what its dump tells.

The objects are those that NVIDIA's operator was recorded to make.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driverforge_operator.app.look import explain, installation, look
from driverforge_operator.app.snapshot import snapshot
from driverforge_operator.cluster.api import ApiServer
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.explain.fleet import fleet
from driverforge_operator.explain.gates import closed
from driverforge_operator.explain.installation import examine
from driverforge_operator.explain.sentence import sentence
from driverforge_operator.ports import Log, Right
from support.cluster.adapter import adapter
from support.cluster.kubernetes import Api
from support.cluster.operator import NAMESPACE, ground, merge
from support.samples.scenes import SceneFolder

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)

NODE = "op-explained"
WORKLOAD = "nvidia-driver-daemonset"
POD = f"{WORKLOAD}-x7k2p"
TOLD = 'Failed to pull image "nvcr.io/nvidia/driver:595.91.07-ubuntu22.04": not found'


@pytest.fixture
def live(api: Api) -> Iterator[ApiServer]:
    with adapter(api, NAMESPACE) as found:
        yield found


def post(api: Api, collection: str, document: dict[str, Any]) -> None:
    answer = api.request("POST", collection, json.dumps(document))
    assert answer.ok or answer.status == 409, answer.message


@pytest.fixture(scope="module")
def scene(api: Api) -> Iterator[SceneFolder]:
    """A node whose driver image is not there, as kubelet and operator leave it in the API."""
    with ground(api):
        found = SceneFolder()
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        merge(api, f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"labels": labels}})
        account = {"metadata": {"name": "nvidia-driver"}}
        post(api, f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
        node, pod = found.node, found.pod("driver")
        node["metadata"] |= {"name": NODE}
        node["metadata"]["labels"]["kubernetes.io/hostname"] = NODE
        post(api, "/api/v1/nodes", node)
        merge(api, f"/api/v1/nodes/{NODE}/status", {"status": node["status"]})
        # the API server taints a new node until a controller finds it ready
        merge(api, f"/api/v1/nodes/{NODE}", {"spec": {"taints": None}})
        metadata = {"name": "explained"}
        post(api, "/apis/nvidia.com/v1/clusterpolicies", {**found.policy, "metadata": metadata})
        workloads = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
        post(api, workloads, {**found.daemonsets[WORKLOAD], "status": {}})
        found.hold("driver", "nvidia-driver-ctr", {"waiting": {"reason": "ImagePullBackOff"}})
        pod["metadata"].pop("ownerReferences")
        pod["spec"]["nodeName"] = NODE
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        post(api, pods, pod)
        merge(api, f"{pods}/{POD}/status", {"status": pod["status"]})
        found.warn("Pod", POD, "Failed", TOLD)
        post(api, f"/api/v1/namespaces/{NAMESPACE}/events", found.others[0])
        yield found


@pytest.mark.usefixtures("scene")
def test_a_live_cluster_and_its_snapshot_say_the_same(api: Api, live: ApiServer, tmp_path: Path) -> None:
    before = len(api.requests())
    _, gates = explain(live, NAMESPACE, NODE)
    told = sentence(NODE, gates)
    assert f"container nvidia-driver-ctr of pod {NAMESPACE}/{POD}" in told
    assert "driverforge build --select 'ubuntu22.04-amd64-595.91.07-jit'" in told
    gate = closed(gates)
    assert gate is not None
    assert gate.finding is not None
    assert gate.finding.evidence == (f"Failed: {TOLD}",)
    for name, text in snapshot(live, NAMESPACE).files.items():
        (tmp_path / name).write_text(text)
    assert sentence(NODE, explain(Dump(tmp_path), NAMESPACE, NODE)[1]) == told
    assert {request.split()[0] for request in api.requests()[before:]} <= {"get", "list"}


@pytest.mark.usefixtures("scene")
def test_the_pool_of_a_live_cluster(live: ApiServer) -> None:
    pools = {one["daemonset"]: one for one in fleet(look(live, NAMESPACE))["pools"]}
    pool = pools[WORKLOAD]
    assert [one["node"] for one in pool["waiting"]] == [NODE]
    # the server fills in defaults on both sides, so none of them makes a driver an old one
    assert pool["old"] == []


@pytest.mark.usefixtures("scene")
def test_the_definitions_that_the_server_stores_lack_nothing(live: ApiServer) -> None:
    known = installation(live, NAMESPACE)
    assert known.live
    assert [one.cause for _, one in examine(known)] == ["no-operator"]


@pytest.mark.usefixtures("scene")
def test_rights_are_the_users_own(api: Api, live: ApiServer) -> None:
    right = Right(verb="delete", group="apps", plural="daemonsets", namespace=NAMESPACE)
    assert live.may(right) is True
    with adapter(api, NAMESPACE, user=next(iter(api.nodes))) as kubelet:
        assert kubelet.may(right) is False
        known = installation(kubelet, NAMESPACE)
    assert right in known.refused
    assert any("daemonsets of all namespaces" in one for one in known.sight.unread)


@pytest.mark.usefixtures("scene")
def test_a_log_that_nobody_has_is_empty(live: ApiServer) -> None:
    for pod in (POD, "no-such-pod"):
        assert live.tail(Log(namespace=NAMESPACE, pod=pod, container="nvidia-driver-ctr"), 5) == ()
