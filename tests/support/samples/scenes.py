"""Clusters as a dump shows them: recorded nodes and objects of NVIDIA's operator, with pods made of them.

No recording has pods: a pod here is its recorded DaemonSet's template, with a status in the words that
kubelets are seen to use in public reports.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driverforge_core import nodekeys
from driverforge_operator.ports import Kind
from driverforge_operator.state.kinds import CLUSTER_POLICY, NVIDIA_DRIVER
from driverforge_operator.state.workloads import DAEMON_SET, EVENT, POD
from support.samples.operatorcases import policy_spec, result

NAMESPACE, NODE = "gpu-operator", "gpu-0"
OPERANDS = {
    "driver": "nvidia-driver-daemonset",
    "container-toolkit": "nvidia-container-toolkit-daemonset",
    "operator-validator": "nvidia-operator-validator",
    "device-plugin": "nvidia-device-plugin-daemonset",
}
Document = dict[str, Any]


def empty(kind: Kind[Any]) -> Document:
    """A list that says of what kind it has none."""
    return {"apiVersion": kind.api_version, "kind": f"{kind.name}List", "metadata": {}, "items": []}


class SceneFolder:
    """The documents of a cluster in the middle of something; `write` makes the dump."""

    def __init__(self, case: str = "default") -> None:
        (nodes,) = result("clusterpolicy", case, "nodes.yaml")
        self.nodes: dict[str, Document] = {
            name: {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, **{key: value or {} for key, value in recorded.items()}},
                "spec": {},
                "status": {
                    "nodeInfo": {"architecture": "amd64", "kernelVersion": "5.15.0-131-generic"},
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                    "capacity": {"nvidia.com/gpu": "8"},
                    "allocatable": {"nvidia.com/gpu": "8"},
                },
            }
            for name, recorded in nodes.items()
        }
        self.policy: Document = {
            "apiVersion": "nvidia.com/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": "cluster-policy", "uid": "policy"},
            "spec": policy_spec(case),
        }
        self.daemonsets: dict[str, Document] = {
            one["metadata"]["name"]: {**one, "apiVersion": "apps/v1"}
            for one in result("clusterpolicy", case, "objects.yaml")
            if one and one["kind"] == "DaemonSet"
        }
        self.pods: dict[str, Document] = {name: self._pod(name) for name in OPERANDS.values()}
        self.others: list[Document] = []
        self.logs: dict[str, str] = {}

    @property
    def node(self) -> Document:
        return self.nodes[NODE]

    def pod(self, component: str) -> Document:
        return self.pods[OPERANDS[component]]

    def of_machines(self, node: str) -> dict[str, Document]:
        """A ready pod of each DaemonSet that selects a node, by the component that it switches."""
        made: dict[str, Document] = {}
        labels = self.nodes[node]["metadata"]["labels"]
        for name, daemonset in self.daemonsets.items():
            selector = daemonset["spec"]["template"]["spec"]["nodeSelector"]
            if selector.items() <= labels.items():
                component = next(key for key in selector if key.startswith(nodekeys.DEPLOY))
                made[component.removeprefix(nodekeys.DEPLOY)] = self._pod(name, node)
        self.others += made.values()
        return made

    def _pod(self, name: str, node: str = NODE) -> Document:
        """A pod that is ready."""
        template = self.daemonsets[name]["spec"]["template"]
        spec = {**copy.deepcopy(template["spec"]), "nodeName": node}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-x7k2p",
                "namespace": NAMESPACE,
                "labels": template["metadata"].get("labels", {}),
                "ownerReferences": [{"kind": "DaemonSet", "name": name}],
            },
            "spec": spec,
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "initContainerStatuses": [
                    {"name": one["name"], "ready": True, "state": {"terminated": {"exitCode": 0}}}
                    for one in spec.get("initContainers", ())
                ],
                "containerStatuses": [
                    {"name": one["name"], "ready": True, "started": True, "state": {"running": {}}}
                    for one in spec["containers"]
                ],
            },
        }

    def hold(self, component: str, container: str, state: Mapping[str, Any], **further: Any) -> None:
        """Let a container be in a state in which its pod gets no further; those after it were not started."""
        status = self.pod(component)["status"]
        status["conditions"] = [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]
        reached = False
        for group in ("initContainerStatuses", "containerStatuses"):
            for one in status[group]:
                if one["name"] == container:
                    one.update({"ready": False, "started": False, "state": dict(state), **further})
                    reached = True
                elif reached and group == "initContainerStatuses":
                    one.update(ready=False, state={"waiting": {"reason": "PodInitializing"}})
                elif reached:
                    one.update(ready=False, started=False, state={"waiting": {"reason": "PodInitializing"}})
        assert reached, f"{component} has no container {container}"

    def wait_behind_driver(self) -> None:
        """What all other operands look like while there is no driver: the picture of the public reports."""
        self.node["status"].update(capacity={}, allocatable={})
        for component, container in (
            ("container-toolkit", "driver-validation"),
            ("operator-validator", "driver-validation"),
            ("device-plugin", "toolkit-validation"),
        ):
            self.hold(component, container, {"running": {}})

    def warn(self, kind: str, name: str, reason: str, message: str, *, when: str = "") -> None:
        """Add an event."""
        self.others.append(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{name}.{len(self.others)}", "namespace": NAMESPACE},
                "involvedObject": {"kind": kind, "namespace": NAMESPACE, "name": name},
                "type": "Warning",
                "reason": reason,
                "message": message,
                "lastTimestamp": when or None,
            }
        )

    def log(self, component: str, container: str, text: str, *, previous: bool = False) -> None:
        name = self.pod(component)["metadata"]["name"]
        end = "_previous.log" if previous else ".log"
        self.logs[f"{NAMESPACE}_{name}_{container}{end}"] = text

    @property
    def documents(self) -> Sequence[Document]:
        return [
            *self.nodes.values(),
            self.policy,
            *self.daemonsets.values(),
            *self.pods.values(),
            *self.others,
            # so much of the cluster is all in it: what is not there is not there
            *map(empty, (POD, DAEMON_SET, EVENT, CLUSTER_POLICY, NVIDIA_DRIVER)),
        ]

    def write(self, folder: Path) -> Path:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        # what `kubectl get -o json` writes
        whole = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": self.documents}
        (folder / "cluster.json").write_text(json.dumps(whole, indent=4), encoding="utf-8")
        for name, text in self.logs.items():
            (folder / "logs" / name).write_text(text, encoding="utf-8")
        return folder
