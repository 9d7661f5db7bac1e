"""The operands of a ClusterPolicy against a real API server, which takes every object, each written once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driverforge_core import nodekeys
from support.cluster.kubernetes import Api
from support.cluster.operator import NAMESPACE, add_node, ground, merge, operator
from support.process import until
from support.samples.operatorcases import policy_spec

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)

POLICY = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"
DAEMONSETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
# as each runtime calls itself
NODES = {"containerd": "containerd://2.1.9", "crio": "cri-o://1.32.1", "docker": "docker://28.5.2"}
CONFIGURATION = f"/api/v1/namespaces/{NAMESPACE}/configmaps/time.slicing"
OWN = f"/api/v1/namespaces/{NAMESPACE}"
PRIVILEGED = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}
READS = ("get", "list", "watch")

EVERYTHING = {
    "driver": {"useNvidiaDriverCRD": True},
    "dcgm": {"enabled": True},
    "nodeStatusExporter": {"enabled": True},
    "devicePlugin": {"config": {"name": "time.slicing", "default": "any"}},
    "dcgmExporter": {"enablePodLabels": True, "hpcJobMapping": {"enabled": True}},
    "psa": {"enabled": True},
    "sandboxWorkloads": {"enabled": True, "mode": "kata"},
}
OPERANDS = {
    "gpu-feature-discovery",
    "nvidia-cc-manager",
    "nvidia-container-toolkit-daemonset",
    "nvidia-container-toolkit-daemonset-crio",
    "nvidia-container-toolkit-daemonset-docker",
    "nvidia-dcgm",
    "nvidia-dcgm-exporter",
    "nvidia-device-plugin-daemonset",
    "nvidia-device-plugin-mps-control-daemon",
    "nvidia-kata-sandbox-device-plugin-daemonset",
    "nvidia-mig-manager",
    "nvidia-node-status-exporter",
    "nvidia-operator-validator",
    "nvidia-sandbox-validator",
    "nvidia-vfio-manager",
    "nvidia-vgpu-device-manager",
}


@pytest.fixture
def cluster(api: Api) -> Iterator[Api]:
    """A node with each runtime, and a ClusterPolicy that wants all that one can want."""
    with ground(api):
        for name, runtime in NODES.items():
            add_node(api, f"op-{name}", os_id="ubuntu", version="22.04")
            info = {"containerRuntimeVersion": runtime}
            merge(api, f"/api/v1/nodes/op-{name}/status", {"status": {"nodeInfo": info}})
        spec = policy_spec("default")
        for field, values in EVERYTHING.items():
            spec[field] |= values
        document = {
            "apiVersion": "nvidia.com/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": "cluster-policy"},
            "spec": spec,
        }
        answer = api.apply(json.dumps(document))
        assert answer.ok, answer.message
        yield api
    # what other tests find there
    merge(api, OWN, {"metadata": {"labels": dict.fromkeys(PRIVILEGED)}})


def labels(api: Api, runtime: str) -> dict[str, str]:
    found: dict[str, str] = api.request("GET", f"/api/v1/nodes/op-{runtime}").body["metadata"]["labels"]
    return found


def daemonsets(api: Api) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in api.request("GET", DAEMONSETS).body["items"]}


def seen(api: Api) -> set[str]:
    """What the pods say of the device plugin's configuration, which three DaemonSets use."""
    found = daemonsets(api)
    users = [name for name in found if name.startswith(("gpu-feature", "nvidia-device-plugin"))]
    templates = [found[name]["spec"]["template"]["metadata"] for name in users]
    return {one.get("annotations", {}).get(nodekeys.CONTENTS, "") for one in templates}


def writes(api: Api) -> list[str]:
    """All but the lease, and what a status says of the nodes that come and go here."""
    return [
        one
        for one in api.requests()
        if not one.startswith(READS) and "leases" not in one and "status" not in one
    ]


def configure(api: Api, log: Path, text: str) -> None:
    """Give the device plugin another configuration; returns once its pods are to start anew."""
    before = seen(api)
    metadata = {"name": CONFIGURATION.rpartition("/")[2], "namespace": NAMESPACE}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"any": text}}
    assert api.apply(json.dumps(document)).ok
    until(lambda: len(seen(api)) == 1 and seen(api) != before, "pods follow it", log=log)


def heard(api: Api, log: Path, name: str) -> None:
    """Wait until the operator has acted on something that was done last."""
    path = f"/api/v1/nodes/{name}"
    add_node(api, name, os_id="ubuntu", version="22.04")
    until(
        lambda: nodekeys.GPU_PRESENT in api.request("GET", path).body["metadata"]["labels"],
        f"{name} is labelled",
        log=log,
    )
    api.request("DELETE", path)


def test_all_operands_are_there_once_and_go_with_their_policy(cluster: Api, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as log:
        until(lambda: set(daemonsets(cluster)) >= OPERANDS, "operands", log=log)
        heard(cluster, log, "op-later")
    assert set(daemonsets(cluster)) == OPERANDS
    assert PRIVILEGED.items() <= cluster.request("GET", OWN).body["metadata"]["labels"].items()
    before = writes(cluster)
    with operator(cluster, tmp_path) as log:
        heard(cluster, log, "op-last")
        assert writes(cluster)[len(before) :] == ["patch nodes op-last"]
        for text in ("one", "another"):
            configure(cluster, log, text)
        assert cluster.request("DELETE", CONFIGURATION).ok
        for runtime in ("crio", "docker"):
            toolkit = daemonsets(cluster)[f"nvidia-container-toolkit-daemonset-{runtime}"]
            selector = toolkit["spec"]["template"]["spec"]["nodeSelector"]
            assert [one for one in NODES if selector.items() <= labels(cluster, one).items()] == [runtime]
        cluster.request("DELETE", POLICY)
        until(lambda: not daemonsets(cluster), "nothing is left", log=log)
