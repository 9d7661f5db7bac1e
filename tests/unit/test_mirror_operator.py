"""The needed images against NVIDIA's own operator: what it made of the same settings and nodes.

Each difference is named here, with whose it is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driverforge_build import resources
from driverforge_core.errors import InputError
from driverforge_mirror.charts.chart import find_chart
from driverforge_mirror.needs.needed import ClusterSettings, needs_of
from driverforge_mirror.needs.nodes import Node, read_nodes
from support.samples.clusternodes import node, write_nodes

CASES = json.loads(
    (Path(__file__).resolve().parents[1] / "cases/charts/operator-images.json").read_text(encoding="utf-8")
)
NFD = "registry.k8s.io/nfd/node-feature-discovery:v0.19.0"
DRIVER = "nvcr.io/nvidia/driver"
OURS_TOO = {
    # upstream takes the first node's system for all nodes
    "two-os": {f"{DRIVER}:595.91.07-rhel9"},
    "precompiled-two-os": {f"{DRIVER}:580-6.8.0-60-generic-ubuntu24.04"},
    # upstream takes the architecture off a kernel's name, and one of the two pools is lost
    "precompiled-arch-collision": {f"{DRIVER}:580-5.14.0-427.37.1.el9_4.aarch64-rhel9"},
    # another controller makes its driver pods; a missing ConfigMap ends the other one's run
    "nvidia-driver-crd": {
        f"{DRIVER}:595.91.07-ubuntu22.04",
        "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
    },
    "repo-config-missing": {
        f"{DRIVER}:595.91.07-ubuntu22.04",
        "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
    },
}
THEIRS_TOO = {
    "precompiled-two-os": {f"{DRIVER}:580-6.8.0-60-generic-ubuntu22.04"},
    # the driver toolkit is in the cluster's release
    "openshift-dtk": {"quay.io/dtk@sha256:aa", "quay.io/dtk@sha256:bb"},
}
# no node with a GPU: upstream deploys nothing, a list takes all nodes and says so
WITHOUT_GPUS = ("no-gpu-nodes", "no-nfd")


def nodes_of(tmp_path: Path, case: Any) -> tuple[Node, ...]:
    nodes = [node(name, **facts) for name, facts in case["nodes"].items()]
    return read_nodes(write_nodes(tmp_path, *nodes))


@pytest.mark.parametrize("name", [name for name in CASES["clusterpolicy"] if name not in WITHOUT_GPUS])
def test_a_chart_with_these_values(tmp_path: Path, name: str) -> None:
    case = CASES["clusterpolicy"][name]
    chart = find_chart("v26.7.0", resources.charts())
    found = needs_of(ClusterSettings(chart=chart, values=[case["values"]], nodes=nodes_of(tmp_path, case)))
    theirs = {*case["images"], NFD, "nvcr.io/nvidia/gpu-operator:v26.7.0"}
    assert set(found.images) - OURS_TOO.get(name, set()) == theirs - THEIRS_TOO.get(name, set())
    assert OURS_TOO.get(name, set()) <= set(found.images)


@pytest.mark.parametrize("name", [name for name in CASES["nvidiadriver"] if name != "precompiled-digest"])
def test_an_nvidia_driver_of_its_own(tmp_path: Path, name: str) -> None:
    case = CASES["nvidiadriver"][name]
    driver = {"kind": "NVIDIADriver", "metadata": {"name": "demo"}, "spec": case["spec"]}
    found = needs_of(ClusterSettings(chart=None, drivers=[driver], nodes=nodes_of(tmp_path, case)))
    assert set(found.images) - OURS_TOO.get(name, set()) == {*case["images"]} - THEIRS_TOO.get(name, set())


def test_a_digest_of_a_precompiled_driver_is_refused_there_and_here(tmp_path: Path) -> None:
    case = CASES["nvidiadriver"]["precompiled-digest"]
    assert case["images"] == []
    driver = {"kind": "NVIDIADriver", "metadata": {"name": "demo"}, "spec": case["spec"]}
    with pytest.raises(InputError, match="is a digest"):
        needs_of(ClusterSettings(chart=None, drivers=[driver], nodes=nodes_of(tmp_path, case)))
