"""A real kubelet on a systemd node, for the API server of `support.cluster.kubernetes`.

Pods that name this node run. Nothing schedules and nothing pulls: a test creates pods with `spec.nodeName`,
and images are archives that it names. A pod has no network but its own loopback, and what `podnetwork` gives
it. What a kubelet writes to the kernel's settings goes to files that the node has in their place.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driverforge_core.errors import CommandFailed, DriverforgeError
from support import aptfetch
from support.cluster import podnetwork
from support.cluster.kubernetes import Api
from support.machines import ociarchive
from support.machines.engine import Engine
from support.machines.systemdnode import SystemdNode, systemd_node
from support.process import until

PAUSE = "driverforge.test/pause:1"
BUSYBOX = "driverforge.test/busybox:1"
CTR = "ctr --namespace k8s.io"

# what a kubelet wants to find; it writes what differs (k8s.io/component-helpers/node/util/sysctl)
_SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
# what Debian installs or 2.x has by itself, and what a site adds: a sandbox image that is there, and no
# negative OOM scores (root may lack CAP_SYS_RESOURCE here)
CONTAINERD = {
    "bookworm": f"""version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "{PAUSE}"  # nothing is pulled
    restrict_oom_score_adj = true
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
    [plugins."io.containerd.grpc.v1.cri".registry]
      config_path = "/etc/containerd/certs.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd/opt"
""",
    "sid": f"""version = 3

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE}'  # nothing is pulled
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['/usr/lib/cni']
    conf_dir = '/etc/cni/net.d'
""",
}
SUITES = tuple(CONTAINERD)  # containerd 1.6, and the newest that runs on Debian 12's C library
_NETWORK = {"cniVersion": "0.4.0", "name": "bench", "plugins": [{"type": "bench"}]}
_UNIT = """[Unit]
After=containerd.service
[Service]
ExecStart=/bench/kubelet --config=/etc/kubelet.json --kubeconfig=/etc/kubeconfig \
--hostname-override={name} --cert-dir=/var/lib/kubelet/pki
Restart=always
RestartSec=1
KillMode=process
"""
_NEVER = {
    "memory.available": "0%",
    "nodefs.available": "0%",
    "nodefs.inodesFree": "0%",
    "imagefs.available": "0%",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeNode:
    """A node that the API server calls Ready."""

    name: str
    machine: SystemdNode
    api: Api
    configuration: str  # /etc/containerd/config.toml as the node started with it

    def create(self, pod: Mapping[str, Any]) -> RunningPod:
        """Create a pod on this node, as the scheduler would, and return at once.

        Raises CommandFailed with the server's words.
        """
        placed = {**pod, "apiVersion": "v1", "kind": "Pod", "spec": {**pod["spec"], "nodeName": self.name}}
        answer = self.api.apply(json.dumps(placed))
        if not answer.ok:
            raise CommandFailed(
                f"the API server refused the pod {pod['metadata']['name']}", details=[answer.message]
            )
        return RunningPod(
            node=self, namespace=pod["metadata"].get("namespace", "default"), name=pod["metadata"]["name"]
        )

    def label(self, labels: Mapping[str, str]) -> None:
        """Give the node labels: its kubelet refuses a pod whose node selector does not fit."""
        answer = self.api.apply(
            json.dumps(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": dict(labels)}}
            )
        )
        if not answer.ok:
            raise CommandFailed(f"the API server refused labels of {self.name}", details=[answer.message])

    def until_ready(self, timeout: float = 120) -> None:
        """Wait until the API server calls the node Ready.

        Raises TemporaryFailure with the kubelet's last words.
        """
        until(self._ready, f"node {self.name} Ready", timeout=timeout)

    def _ready(self) -> bool:
        answer = self.api.request("GET", f"/api/v1/nodes/{self.name}")
        return answer.ok and _condition(answer.body, "Ready")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPod:
    """A pod that was created on a node."""

    node: KubeNode
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def status(self) -> dict[str, Any]:
        """The pod's status; {} where there is no such pod."""
        answer = self.node.api.request("GET", self.path)
        found: dict[str, Any] = answer.body["status"] if answer.ok else {}
        return found

    def containers(self) -> list[tuple[str, int]]:
        """Id and number of restarts of each container."""
        return [
            (row.get("containerID", ""), row["restartCount"])
            for row in self.status().get("containerStatuses", [])
        ]

    def ready(self) -> bool:
        return _condition({"status": self.status()}, "Ready")

    def until_ready(self, timeout: float = 180) -> RunningPod:
        """Wait until all containers run and their readiness probes pass.

        Raises CommandFailed, with logs, if it never comes to that.
        """
        self._until(self.ready, "Ready", timeout)
        return self

    def _until(self, condition: Callable[[], bool], what: str, timeout: float) -> None:
        try:
            until(condition, f"pod {self.name} {what}", timeout=timeout)
        except DriverforgeError as error:
            raise CommandFailed(f"pod {self.name} is not {what}", details=self.about()) from error

    def about(self) -> list[str]:
        """What a person would look at: status, events, logs."""
        listed = self.node.api.request(
            "GET", f"/api/v1/namespaces/{self.namespace}/events?fieldSelector=involvedObject.name={self.name}"
        )
        events = (
            [f"{row.get('reason')}: {row.get('message')}" for row in listed.body.get("items", [])]
            if listed.ok
            else []
        )
        return [json.dumps(self.status(), indent=1), *events, "log:", *self.logs().splitlines()]

    def logs(self) -> str:
        """What all its containers have written in all their lives, as the kubelet keeps it on the node."""
        folder = f"/var/log/pods/{shlex.quote(self.namespace)}_{shlex.quote(self.name)}_*"
        return self.node.machine.run(f"cat {folder}/*/*.log", check=False).stdout

    def delete(self, timeout: float = 120) -> None:
        """Delete it and wait until it is gone."""
        self.node.api.request("DELETE", self.path)
        until(lambda: not self.status(), f"the end of pod {self.name}", timeout=timeout)


def _condition(body: Mapping[str, Any], kind: str) -> bool:
    return any(
        row["type"] == kind and row["status"] == "True" for row in body["status"].get("conditions", [])
    )


@contextmanager
def kube_node(
    engine: Engine,
    base: str,
    api: Api,
    kubelet: Path,
    folder: Path,
    *,
    name: str,
    images: Iterable[Path],
    suite: str = "bookworm",
    network: str = podnetwork.ALONE,
) -> Iterator[KubeNode]:
    """Start a Debian 12 node with a kubelet and the containerd of `suite`; yields when the node is Ready.

    `suite` is one of SUITES. `name` is one for which `api` knows a token. `images` are archives that name
    their image; `PAUSE` and `BUSYBOX` are there anyway. `network` is a plugin of podnetwork. What the node
    leaves on the machine goes to `folder`.
    """
    share = folder / "share"
    share.mkdir()
    archives = [*small_images(share), *images]
    inside = {f"/bench/image-{number}.tar": archive for number, archive in enumerate(archives)}
    mounts = {"/bench/kubelet": kubelet, **inside, **_containerd(suite)}
    with systemd_node(engine, base, mounts=mounts, name=name) as machine:
        node = KubeNode(name=name, machine=machine, api=api, configuration=CONTAINERD[suite])
        _spare_the_kernel(machine)
        machine.put("/etc/containerd/config.toml", node.configuration)
        machine.put("/etc/cni/net.d/10-bench.conflist", json.dumps(_NETWORK))
        for plugin in ("bench", "loopback"):
            machine.put(f"/usr/lib/cni/{plugin}", network)
            machine.run(f"chmod +x /usr/lib/cni/{plugin}")
        machine.run("systemctl restart containerd")
        for archive in inside:
            # each archive names itself: a second name for its index would be the same one, and ctr 1.6
            # unpacks an index that a garbage collection may take away as soon as the name has moved on
            machine.run(f"{CTR} images import {archive}")
        _start_kubelet(node)
        try:
            node.until_ready()
        except DriverforgeError as error:
            raise CommandFailed("the kubelet does not come up", details=machine.journal("kubelet")) from error
        yield node


def _containerd(suite: str) -> dict[str, Path]:
    """Programs that replace those of the node's own packages."""
    if suite == "bookworm":
        return {}
    archive = aptfetch.archive()
    prefix = archive.unpacked([archive.newest("containerd", suite=suite)])
    return {
        f"/usr/bin/{name}": prefix / "usr/bin" / name
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    }


def small_images(folder: Path) -> list[Path]:
    """Two images with nothing but a static busybox.

    One waits until it is stopped, the other is for running commands.
    """
    archive = aptfetch.archive()
    busybox = archive.unpacked([archive.newest("busybox-static", suite="bookworm")]) / "bin/busybox"
    layer = {"bin/busybox": busybox, "bin/sh": busybox}
    environment = ["PATH=/bin"]
    entrypoints = {"pause": (PAUSE, ["/bin/busybox", "sleep", "infinity"]), "busybox": (BUSYBOX, ["/bin/sh"])}
    made = {folder / f"{name}.tar": about for name, about in entrypoints.items()}
    for file, (reference, entrypoint) in made.items():
        ociarchive.write(file, [layer], config={"Entrypoint": entrypoint, "Env": environment}, name=reference)
    return list(made)


def _spare_the_kernel(machine: SystemdNode) -> None:
    for name, value in _SYSCTLS.items():
        file = f"/etc/bench-sysctl/{name.replace('/', '-')}"
        machine.put(file, f"{value}\n")
        machine.run(f"mount --bind {file} /proc/sys/{name}")


def configuration(**changes: object) -> str:
    """The kubelet's configuration file. `changes` are fields that differ."""
    fields = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # no port at all: its network is the machine's
        "enableServer": False,
        "healthzPort": 0,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "evictionHard": _NEVER,
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "maxOpenFiles": 20000,  # more than the hard limit is refused
        "oomScoreAdj": 0,
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "5s",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "shutdownGracePeriod": "0s",
    }
    return json.dumps({**fields, **changes})


def _start_kubelet(node: KubeNode) -> None:
    node.machine.put("/etc/kubelet.json", configuration())
    node.machine.put("/etc/kubeconfig", node.api.kubeconfig(node.name))
    node.machine.put("/etc/systemd/system/kubelet.service", _UNIT.format(name=node.name))
    node.machine.run("systemctl daemon-reload && systemctl start kubelet")
