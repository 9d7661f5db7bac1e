"""`explain NODE`: what is wrong with the node itself, with its labels, or with what is meant for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from driverforge_core import nodekeys
from driverforge_core.errors import InputError
from driverforge_operator.app.look import explain
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.explain.gate import GateState
from driverforge_operator.explain.gates import closed
from driverforge_operator.ports import Log
from support.samples.explained import CRASHED, EXITED, relabelled, shut
from support.samples.scenes import NAMESPACE, NODE, SceneFolder


def test_labels_that_stayed_paused(tmp_path: Path) -> None:
    key = f"{nodekeys.DEPLOY}device-plugin"  # 316, 2833
    scene = relabelled(**{key: "paused-for-driver-upgrade"})
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("deploy labels", "labels-paused")
    assert finding.command == f"kubectl label node gpu-0 --overwrite {key}=true"
    # while the driver manager is at it, its own trouble is what counts
    scene.hold("driver", "k8s-driver-manager", {"running": {}})
    scene.log("driver", "k8s-driver-manager", "Waiting for MOFED to be installed...")
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("driver pod", "mofed")


def test_labels_that_are_missing(tmp_path: Path) -> None:
    feature = "feature.node.kubernetes.io/pci-10de.present"
    assert shut(relabelled(**{feature: None}), tmp_path)[1].cause == "no-gpu"
    bare = SceneFolder()
    bare.node["metadata"]["labels"] = {}
    gate, finding = shut(bare, tmp_path)
    assert (gate.name, finding.cause) == ("NFD labels", "nfd-missing")
    bare.node["spec"]["taints"] = [{"key": "team", "effect": "NoSchedule"}]
    assert "does not stand a taint" in shut(bare, tmp_path)[1].told
    gate, finding = shut(relabelled(**{nodekeys.GPU_PRESENT: None}), tmp_path)
    assert (gate.name, finding.cause) == ("gpu.present", "operator-down")
    gate, finding = shut(relabelled(**{nodekeys.OPERANDS: "false"}), tmp_path)
    assert (gate.name, finding.cause) == ("deploy labels", "switched-off")


def test_a_worker_of_node_feature_discovery_that_crashes(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.node["metadata"]["labels"] = {}
    worker: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gpu-operator-node-feature-discovery-worker-2f7hq", "namespace": "nfd"},
        "spec": {"nodeName": NODE, "containers": [{"name": "worker", "image": "nfd:1"}]},
        "status": {"containerStatuses": [{"name": "worker", "state": CRASHED, **EXITED}]},
    }
    scene.others.append(worker)
    gate, finding = shut(scene, tmp_path)
    assert gate.name == "NFD labels"
    assert finding.blocked is not None
    assert finding.blocked.log == Log(
        namespace="nfd", pod=worker["metadata"]["name"], container="worker", previous=True
    )


def test_pods_that_the_api_server_refuses(tmp_path: Path) -> None:
    scene = SceneFolder()
    del scene.pods["nvidia-driver-daemonset"]
    assert shut(scene, tmp_path)[1].cause == "no-pod-yet"
    scene.warn(
        "DaemonSet",
        "nvidia-driver-daemonset",
        "FailedCreate",
        'Error creating: pods "nvidia-driver-daemonset-hxf84" is forbidden: violates PodSecurity '
        '"baseline:latest": host namespaces (hostPID=true), privileged (container "nvidia-driver-ctr" '
        "must not "
        "set securityContext.privileged=true)",
    )
    _, finding = shut(scene, tmp_path)
    assert finding.cause == "psa"
    assert finding.command.startswith("kubectl label namespace gpu-operator ")


def test_a_node_with_labels_is_not_ready_where_nothing_is_asked_for(tmp_path: Path) -> None:
    """Its labels stay when the last custom resource goes."""
    scene = SceneFolder()
    scene.node["status"].update(capacity={}, allocatable={})
    scene.policy = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": []}
    scene.daemonsets, scene.pods = {}, {}
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("gpu.present", "not-asked")
    assert finding.what == "nothing asks for operands"


@pytest.mark.parametrize("by_resource", [False, True])
def test_an_nvidiadriver_asks_for_a_driver_only_where_it_decides(
    tmp_path: Path, *, by_resource: bool
) -> None:
    """It has no switch of its own: with a ClusterPolicy that does not say so it is disabled."""
    scene = SceneFolder()
    scene.policy["spec"]["driver"] = {"enabled": False, "useNvidiaDriverCRD": by_resource}
    metadata = {"name": "default", "uid": "driver"}
    scene.others.append({"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "metadata": metadata})
    del scene.pods["nvidia-driver-daemonset"]
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)
    (gate,) = [one for one in gates if one.name == "driver pod"]
    assert ("no custom resource asks for it" in gate.told) is not by_resource


def test_no_daemonset_for_this_node(tmp_path: Path) -> None:
    scene = SceneFolder()
    del scene.pods["nvidia-driver-daemonset"]
    template = scene.daemonsets["nvidia-driver-daemonset"]["spec"]["template"]
    template["spec"]["nodeSelector"][nodekeys.KERNEL] = "5.15.0-99-generic"
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.cause) == ("driver pod", "not-selected")
    assert "=5.15.0-99-generic, and the node has 5.15.0-131-generic" in finding.what
    # nothing at all: what the custom resource says counts
    del scene.daemonsets["nvidia-driver-daemonset"]
    assert shut(scene, tmp_path)[1].cause == "operator-down"


def test_a_driver_of_the_host_is_no_closed_gate(tmp_path: Path) -> None:
    scene = relabelled(**{f"{nodekeys.DEPLOY}driver": "pre-installed"})
    del scene.pods["nvidia-driver-daemonset"]
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)
    assert closed(gates) is None
    assert [gate.name for gate in gates if gate.state is GateState.OFF] == ["driver pod", "driver ready"]


def test_a_node_for_virtual_machines_has_no_gates_of_containers(tmp_path: Path) -> None:
    scene = SceneFolder("sandbox-mixed-nodes")
    machines = [
        name
        for name, node in scene.nodes.items()
        if f"{nodekeys.DEPLOY}vfio-manager" in node["metadata"]["labels"]
    ]
    assert machines
    for name in machines:
        _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, name)
        states = {gate.name: gate.state for gate in gates}
        assert states["deploy labels"] is GateState.OPEN
        assert states["toolkit"] is states["validator"] is GateState.OFF


def test_a_node_that_is_not_ready_or_held_back(tmp_path: Path) -> None:
    scene = SceneFolder()
    scene.node["spec"] = {"taints": [{"key": "readiness.k8s.io/gpu", "effect": "NoSchedule"}]}
    assert shut(scene, tmp_path)[1].cause == "unready-taint"
    scene.node["spec"] = {"taints": [{"key": nodekeys.NOT_READY, "effect": "NoSchedule"}]}
    assert shut(scene, tmp_path)[1].cause == "ready-taint"
    scene.node["spec"] = {"unschedulable": True}
    assert shut(scene, tmp_path)[1].cause == "cordoned"
    scene.node["metadata"]["labels"][nodekeys.UPGRADE_STATE] = "upgrade-done"
    assert shut(scene, tmp_path)[1].cause == "cordoned"
    told = "container runtime is down"
    scene.node["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": told}
    ]
    gate, finding = shut(scene, tmp_path)
    assert (gate.name, finding.evidence) == ("kubelet", (told,))


def test_an_upgrade_that_nobody_ended_is_named(tmp_path: Path) -> None:
    """gpu-operator#2549: the label stays, and with it the node is cordoned."""
    scene = relabelled(**{nodekeys.UPGRADE_STATE: "upgrade-failed"})
    _, gates = explain(Dump(scene.write(tmp_path)), NAMESPACE, NODE)
    (labels,) = (gate for gate in gates if gate.name == "deploy labels")
    assert labels.told.endswith("; nvidia.com/gpu-driver-upgrade-state=upgrade-failed")
    scene.node["spec"] = {"unschedulable": True}
    found = shut(scene, tmp_path)[1]
    assert found.cause == "upgrade-left"
    assert found.command == (
        "kubectl label node gpu-0 nvidia.com/gpu-driver-upgrade-state- && kubectl uncordon gpu-0"
    )


def test_a_node_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no node gpu-9"):
        explain(Dump(SceneFolder().write(tmp_path)), NAMESPACE, "gpu-9")
