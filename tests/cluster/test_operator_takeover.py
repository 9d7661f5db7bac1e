"""A DaemonSet that NVIDIA's operator left behind, taken over by ours on a real API server."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driverforge_core import nodekeys
from driverforge_operator.state.kinds import MANAGED_BY, MANAGER
from support.cluster.kubernetes import Api
from support.cluster.operator import (
    DAEMONSETS,
    NODES,
    add_node,
    forget,
    operator,
    small_cluster,
)
from support.process import until

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)

HASH = "nvidia.com/last-applied-hash"
LATER = "op-later"


@pytest.fixture
def cluster(api: Api) -> Iterator[Api]:
    with small_cluster(api) as found:
        assert found.request("DELETE", NODES[1]).ok
        yield found


def daemonsets(api: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.request("GET", DAEMONSETS).body["items"]
    return found


def made_by_nvidia(api: Api, ours: dict[str, Any]) -> str:
    """The same by NVIDIA's operator, with a variable and a container that ours lacks, and an administrator's.

    Returns its name.
    """
    spec = copy.deepcopy(ours["spec"])
    pod = spec["template"]["spec"]
    pod["containers"][0].setdefault("env", []).append({"name": "THEIRS", "value": "1"})
    pod["containers"].append({"name": "side-car", "image": "example.com/side-car:1"})
    metadata = {"name": ours["metadata"]["name"], "annotations": {HASH: "1"}, "labels": {"app": "theirs"}}
    document = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}
    answer = api.request("POST", f"{DAEMONSETS}?fieldManager=gpu-operator", json.dumps(document))
    assert answer.ok, answer.message
    container = {"name": pod["containers"][0]["name"], "env": [{"name": "ADMIN", "value": "1"}]}
    edited = {
        "metadata": {"annotations": {"admin": "1"}},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    answer = api.request(
        "PATCH",
        f"{DAEMONSETS}/{metadata['name']}?fieldManager=kubectl-edit",
        json.dumps(edited),
        kind="application/strategic-merge-patch+json",
    )
    assert answer.ok, answer.message
    return str(metadata["name"])


def labels(api: Api, path: str) -> dict[str, str]:
    found: dict[str, str] = api.request("GET", path).body["metadata"].get("labels", {})
    return found


def variables(daemonset: dict[str, Any]) -> set[str]:
    """Those of NVIDIA's operator and the administrator that are left."""
    env = daemonset["spec"]["template"]["spec"]["containers"][0]["env"]
    return {one["name"] for one in env} & {"THEIRS", "ADMIN"}


def test_what_nvidias_operator_wrote_goes_and_an_administrators_stays(cluster: Api, tmp_path: Path) -> None:
    with operator(cluster, tmp_path) as log:
        until(lambda: len(daemonsets(cluster)) == 1, "a driver", log=log)
    (ours,) = daemonsets(cluster)
    forget(cluster)
    name = made_by_nvidia(cluster, ours)
    before = len(cluster.requests())
    with operator(cluster, tmp_path) as log:
        until(lambda: labels(cluster, f"{DAEMONSETS}/{name}").get(MANAGED_BY) == MANAGER, "ours", log=log)
        # a node that is labelled shows that it has looked at what it wrote
        add_node(cluster, LATER, os_id="ubuntu", version="22.04")
        path = f"/api/v1/nodes/{LATER}"
        until(lambda: nodekeys.GPU_PRESENT in labels(cluster, path), "a node is labelled", log=log)
    (found,) = daemonsets(cluster)
    assert variables(found) == {"ADMIN"}
    pod, wanted = found["spec"]["template"]["spec"], ours["spec"]["template"]["spec"]
    assert [one["name"] for one in pod["containers"]] == [one["name"] for one in wanted["containers"]]
    assert found["metadata"]["annotations"].keys() >= {"admin"}
    assert HASH not in found["metadata"]["annotations"]
    writes = [one for one in cluster.requests()[before:] if one == f"patch daemonsets {name}"]
    assert len(writes) == 2
