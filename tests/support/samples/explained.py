"""Nodes that are not ready, and what `explain` says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from driverforge_operator.app.look import explain
from driverforge_operator.cluster.dump import Dump
from driverforge_operator.explain.finding import Finding
from driverforge_operator.explain.gate import Gate
from driverforge_operator.explain.gates import closed
from support.samples.scenes import NAMESPACE, NODE, SceneFolder

CRASHED = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}}
EXITED = {"lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}, "restartCount": 7}


def shut(scene: SceneFolder, folder: Path) -> tuple[Gate, Finding]:
    """The closed gate of the scene's node, through the folder of a dump."""
    _, gates = explain(Dump(scene.write(folder)), NAMESPACE, NODE)
    gate = closed(gates)
    assert gate is not None
    assert gate.finding is not None
    return gate, gate.finding


def crash(component: str, container: str, log: str) -> SceneFolder:
    scene = SceneFolder()
    scene.wait_behind_driver()
    scene.hold(component, container, CRASHED, **EXITED)
    scene.log(component, container, log, previous=True)
    return scene


def relabelled(**labels: str | None) -> SceneFolder:
    scene = SceneFolder()
    for key, value in labels.items():
        if value is None:
            del scene.node["metadata"]["labels"][key]
        else:
            scene.node["metadata"]["labels"][key] = value
    return scene


def undeployed() -> SceneFolder:
    """The first roll-out of a driver: its DaemonSet is not there yet."""
    scene = SceneFolder()
    scene.wait_behind_driver()
    del scene.pods["nvidia-driver-daemonset"], scene.daemonsets["nvidia-driver-daemonset"]
    return scene


NVD = "nvidia.com/v1alpha1"


def nvidia_driver(name: str, status: dict[str, Any], **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": name}
    return {"apiVersion": NVD, "kind": "NVIDIADriver", "metadata": metadata, "spec": spec, "status": status}
