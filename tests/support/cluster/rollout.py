"""The operator's way from an NVIDIADriver to a loaded module, as a person goes it, on one node of a guest.

The operator is a process of this machine with the rights of the chart's own account. The node gets the labels
that Node Feature Discovery would give it. There is no GPU behind the guest's PCI function, so nvidia-smi is
left out where the operator's pods would ask it: `WITHOUT_GPU` says so in the resource itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from driverforge_core.cell import CellId
from driverforge_core.errors import DriverforgeError
from support.cluster import kubernetes_build
from support.cluster.guestnode import GuestNode
from support.cluster.kubernetes import Api
from support.cluster.operator import (
    COMMAND,
    DAEMONSETS,
    NAMESPACE,
    PODS,
    ROOT,
    environment,
    establish,
    merge,
    node_labels,
    operator,
)
from support.machines import kernels, kmods, qemu, rootfs
from support.machines.guest import Guest
from support.machines.kernels import Kernel
from support.process import Finished, require, run, until

ACCOUNT = "driverforge-operator"
DRIVER, DRIVER_PATH = "fleet", "/apis/nvidia.com/v1alpha1/nvidiadrivers/fleet"
POLICY_PATH = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"
WITHOUT_GPU = {"name": "DRIVER_VALIDATION_SKIP_GPU_INIT", "value": "true"}
_BASE = ROOT / "charts/driverforge/kustomize/driverforge.yaml"
_NVIDIAS_OWN = ("devicePlugin", "gfd", "dcgmExporter", "migManager")  # images that cannot be had here
_ELSEWHERE = ("Deployment", "ClusterPolicy")  # the operator is a process here; a test has a policy of its own


def install(api: Api) -> None:
    """What the chart installs, but the operator's Deployment and its ClusterPolicy."""
    establish(api)
    for document in yaml.safe_load_all(_BASE.read_text()):
        if document["kind"] not in _ELSEWHERE:
            answer = api.apply(json.dumps(document))
            assert answer.ok, answer.message


def account(api: Api) -> str:
    """A kubeconfig of the chart's account."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = api.request("POST", path, json.dumps(asked))
    assert answer.ok, answer.message
    return api.kubeconfig_with(answer.body["status"]["token"])


@contextmanager
def rolling(node: GuestNode, folder: Path) -> Iterator[Rollout]:
    """Install what the chart does, and run the operator as its account until the block ends."""
    api = node.api
    install(api)
    config = folder / "kubeconfig"
    config.write_text(api.kubeconfig_with(api.token))
    with operator(api, folder, config=account(api)) as log:
        yield Rollout(node=node, config=config, log=log)


def nvidia_driver(cell: CellId, registry: str, manager: str) -> dict[str, Any]:
    """An NVIDIADriver for every node, with the cell's modules.

    `registry` is HOST:PORT/PATH, `manager` the image with `driver-manager`.
    """
    spec = {
        "default": True,
        "driverType": "gpu",
        "repository": registry,
        "image": "driver",
        "version": str(cell.driver.branch),
        "usePrecompiled": True,
        "manager": _image(manager),
        "env": [WITHOUT_GPU],
        "startupProbe": {"initialDelaySeconds": 1, "periodSeconds": 2},
    }
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "NVIDIADriver",
        "metadata": {"name": DRIVER},
        "spec": spec,
    }


def cluster_policy(image: str) -> dict[str, Any]:
    """The chart's ClusterPolicy, as far as `image`, a toolkit's, goes: toolkit, validator, exporter."""
    documents = yaml.safe_load_all(_BASE.read_text())
    found: dict[str, Any] = next(one for one in documents if one["kind"] == "ClusterPolicy")
    spec = found["spec"]
    spec["driver"]["useNvidiaDriverCRD"] = True
    for name in _NVIDIAS_OWN:
        spec[name]["enabled"] = False
    for name in ("toolkit", "validator", "nodeStatusExporter"):
        spec[name] |= _image(image)
    spec["nodeStatusExporter"]["enabled"] = True
    spec["validator"]["driver"] = {"env": [WITHOUT_GPU]}
    return found


def _image(name: str) -> dict[str, str]:
    """A name as a resource has it."""
    place, _, tag = name.rpartition(":")
    repository, _, image = place.rpartition("/")
    return {"repository": repository, "image": image, "version": tag}


def parts_of_a_node() -> Path:
    """The kubelet. Raises Unavailable where a part of a guest node cannot be had here."""
    require(qemu.PROGRAM, "busybox", "kmod", "depmod", "mke2fs", "setpriv")
    return kubernetes_build.kubelet()


@contextmanager
def guest_node(api: Api, kernel: Kernel, *, images: Path, registry: str) -> Iterator[GuestNode]:
    """A node that is Ready, and labelled as Node Feature Discovery does.

    `images` is its image store. `registry` is HOST:PORT of one on this machine's loopback.
    """
    kubelet, fakegpu = parts_of_a_node(), kmods.fakegpu(kernel)
    machine = rootfs.rebooting_machine(
        kernels.image(kernel.release),
        store=images,
        append=kmods.GPU_MEMORY,
        memory=3072,
        service=api.port,
    )
    with Guest.start(machine, saved=False, timeout=900) as guest:
        node = GuestNode(guest, api, next(iter(api.nodes)))
        node.join(kubelet, fakegpu, registry=registry)
        until(node.ready, "the node Ready", timeout=600)
        labels = node_labels(os_id="debian", version="12", kernel=kernel.release)
        merge(api, node.path, {"metadata": {"labels": labels}})
        yield node


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A cluster of one node with an operator at work."""

    node: GuestNode
    config: Path  # of somebody who may see everything
    log: Path  # the operator's

    @property
    def api(self) -> Api:
        return self.node.api

    def apply(self, document: Mapping[str, Any]) -> None:
        answer = self.api.apply(json.dumps(document))
        assert answer.ok, answer.message

    def change(self, **spec: Any) -> None:
        """Edit the NVIDIADriver."""
        merge(self.api, DRIVER_PATH, {"spec": spec})

    def condition(self) -> tuple[str, str]:
        """Reason and message of the NVIDIADriver's condition that is True."""
        return self._condition(DRIVER_PATH)

    def policy(self) -> tuple[str, str]:
        """The same of the ClusterPolicy."""
        return self._condition(POLICY_PATH)

    def _condition(self, path: str) -> tuple[str, str]:
        status = self.api.request("GET", path).body.get("status", {})
        found = [one for one in status.get("conditions", ()) if one["status"] == "True"]
        return (found[0]["reason"], found[0]["message"]) if found else ("", "")

    def until_reason(self, reason: str) -> str:
        """Wait until the NVIDIADriver says so; returns its message."""
        self.until(lambda: self.condition()[0] == reason, f"NVIDIADriver {reason}")
        return self.condition()[1]

    def until(self, condition: Callable[[], bool], what: str, *, timeout: float = 900) -> None:
        """Wait; an error has what the operator, the pods and the node say."""
        try:
            until(condition, what, timeout=timeout, log=self.log)
        except DriverforgeError as error:
            pods = (json.dumps(one["status"]) for one in self.pods(""))
            error.details = (*error.details, *pods, *self.node.logs())
            raise

    def daemonsets(self) -> dict[str, dict[str, Any]]:
        found = self.api.request("GET", DAEMONSETS).body["items"]
        return {one["metadata"]["name"]: one for one in found}

    def driver_pods(self) -> list[dict[str, Any]]:
        return self.pods("app.kubernetes.io/component=nvidia-driver")

    def pods(self, label: str) -> list[dict[str, Any]]:
        query = f"labelSelector={label.replace('=', '%3D')}"
        found: list[dict[str, Any]] = self.api.request("GET", f"{PODS}?{query}").body["items"]
        return found

    def operator(self, *words: str) -> Finished:
        """Run `driverforge-operator WORDS` as a person with every right."""
        argv = [*COMMAND, *words, "--namespace", NAMESPACE]
        return run(*argv, env=environment(self.config), check=False)
