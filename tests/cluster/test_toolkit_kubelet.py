"""The toolkit's DaemonSet pod on a real node: kubelet, containerd under systemd, RuntimeClass, pods before
and after restarts.

There is no GPU and no driver: the node says that NVIDIA's module is loaded. The runtime behind the handler is
a test double that logs what it was called with, or NVIDIA's own, which gives the pod a device of a CDI
specification that the test wrote.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from driverforge_core.errors import Unavailable
from support.cluster import kubernetes_build, toolkitpod
from support.cluster.kubelet import BUSYBOX, SUITES, KubeNode, RunningPod, kube_node
from support.cluster.kubernetes import Api, documents
from support.machines.engine import Engine, debian_base, find_or_start
from support.skipping import provided
from support.upstream import gotools

pytestmark = [
    # programs may have to be compiled, and a node's image made
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="a node in a privileged container needs root"),
]

NAMESPACE = "workloads"
DOUBLES, NVIDIAS = "driverforge.test/toolkit:doubles", "driverforge.test/toolkit:nvidia"
# what a kubelet writes, and what systemd would
KERNEL = ("kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "vm/panic_on_oom", "kernel/pid_max")
# The handlers' wrappers ask whether NVIDIA's module is loaded; a machine without modules has no such file,
# and cannot be given one.
GREP = """#!/bin/sh
case $* in
*' /proc/modules') exit 0 ;;
esac
exec /bin/grep "$@"
"""
DEVICE = {"path": "/dev/bench0", "hostPath": "/dev/null"}
CDI = {
    "cdiVersion": "0.5.0",
    "kind": "bench.test/gpu",
    "devices": [{"name": "0", "containerEdits": {"deviceNodes": [DEVICE], "env": ["BENCH_GPU=zero"]}}],
}


@pytest.fixture(scope="session")
def kubelet() -> Path:
    return provided(kubernetes_build.kubelet)


@pytest.fixture(scope="session")
def engine(kubelet: Path) -> Iterator[Engine]:
    found = provided(find_or_start)
    if not found.host.startswith("unix://"):
        pytest.skip(
            f"the engine at {found.host} is on another machine, and has neither this one's files nor its "
            "network"
        )
    yield found
    found.stop()


@pytest.fixture(scope="session")
def images(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The toolkit's images, by name: one with doubles, and where they can be had one with NVIDIA's own
    programs.
    """
    folder = tmp_path_factory.mktemp("toolkit")
    base = provided(lambda: debian_base(engine))
    sources = {DOUBLES: toolkitpod.doubles(folder / "doubles")}
    with suppress(Unavailable):  # the test that needs them says why
        sources[NVIDIAS] = gotools.artifacts(folder / "nvidias")
    return {
        name: toolkitpod.image(engine, base, folder, reference=name, artifacts=source)
        for name, source in sources.items()
    }


@pytest.fixture(scope="module")
def kernel() -> dict[str, str]:
    """Settings of the machine's kernel before there is a node."""
    return kernel_settings()


def kernel_settings() -> dict[str, str]:
    return {name: Path("/proc/sys", name).read_text() for name in KERNEL}


@pytest.fixture(
    scope="module",
    params=[
        SUITES[-1],
        *(pytest.param(suite, marks=pytest.mark.full(reason="more of the same")) for suite in SUITES[:-1]),
    ],
)
def node(
    request: pytest.FixtureRequest,
    kubelet: Path,
    engine: Engine,
    images: dict[str, Path],
    kernel: dict[str, str],
    api: Api,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[KubeNode]:
    """A node with a kubelet in a cluster that has the toolkit's manifest."""
    for document in (*documents(toolkitpod.MANIFEST.read_text()), *map(json.dumps, _objects())):
        answer = api.apply(document)
        assert answer.ok, answer.message
    base, folder = debian_base(engine), tmp_path_factory.mktemp("node")
    with kube_node(
        engine,
        base,
        api,
        kubelet,
        folder,
        name=f"node-{request.param}",
        images=images.values(),
        suite=request.param,
    ) as made:
        made.machine.put("/usr/local/bin/grep", GREP)
        made.machine.run("chmod +x /usr/local/bin/grep")
        made.label(toolkitpod.daemonset()["spec"]["template"]["spec"]["nodeSelector"])
        yield made


def _objects() -> list[dict[str, Any]]:
    about = {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": about},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": NAMESPACE},
        },
    ]


@pytest.fixture
def pods(node: KubeNode) -> Iterator[Pods]:
    made = Pods(node)
    yield made
    for pod in made.made:
        pod.delete()


class Pods:
    """Makes pods on a node, and remembers them."""

    def __init__(self, node: KubeNode) -> None:
        self.node = node
        self.made: list[RunningPod] = []

    def workload(
        self, name: str, *, handler: str = "", environment: Mapping[str, str] | None = None
    ) -> RunningPod:
        """A pod that shows its environment and its device and runs until it is deleted; Ready."""
        container = {
            "name": "main",
            "image": BUSYBOX,
            "args": ["-c", "env; ls -l /dev/bench0; trap exit TERM; sleep infinity & wait"],
            "env": [{"name": key, "value": value} for key, value in (environment or {}).items()],
        }
        spec = {
            "automountServiceAccountToken": False,
            "containers": [container],
            **({"runtimeClassName": handler} if handler else {}),
        }
        return self._create(
            {"metadata": {"name": f"{name}-{self.node.name}", "namespace": NAMESPACE}, "spec": spec}
        )

    def toolkit(self, name: str, reference: str, environment: Mapping[str, str] | None = None) -> RunningPod:
        """The toolkit's pod, Ready: all that it does is done."""
        return self._create(
            toolkitpod.pod(
                f"nvidia-toolkit-{name}-{self.node.name}", reference=reference, environment=environment
            )
        )

    def _create(self, pod: Mapping[str, Any]) -> RunningPod:
        self.made.append(self.node.create(pod))
        return self.made[-1].until_ready()


def went_through_the_double(node: KubeNode, pod: RunningPod) -> bool:
    """Whether the double has created the pod's container."""
    [(container, _)] = pod.containers()
    log = node.machine.run(f"cat {toolkitpod.LOG}", check=False).stdout.splitlines()
    return any(" create " in line and line.endswith(container.removeprefix("containerd://")) for line in log)


def life(node: KubeNode) -> tuple[str, ...]:
    """What differs after any restart of containerd."""
    return node.machine.unit("containerd", "InvocationID", "MainPID", "NRestarts")


def configuration(node: KubeNode, *facts: str) -> str:
    """Content of every file of containerd's configuration, and what `stat` says of it (in its format)."""
    marks = f"-exec stat -c '%n {' '.join(facts)}' {{}} +"
    return node.machine.run(
        f"cd /etc/containerd; find . -type f -exec sha256sum {{}} + {marks} | sort"
    ).stdout


def test_pods_run_through_the_handler_before_and_after_restarts(node: KubeNode, pods: Pods) -> None:
    bystander = pods.workload("bystander")
    unconfigured = life(node)

    toolkit = pods.toolkit("a", DOUBLES)
    configured, files = life(node), configuration(node, "%a", "%i", "%Y")
    assert configured != unconfigured
    assert [restarts for _, restarts in toolkit.containers()] == [0]
    first = pods.workload("first", handler="nvidia")
    assert went_through_the_double(node, first)
    assert not went_through_the_double(node, bystander)

    toolkit.delete()
    second = pods.workload("second", handler="nvidia")
    assert went_through_the_double(node, second)
    toolkit = pods.toolkit("b", DOUBLES)
    assert (life(node), configuration(node, "%a", "%i", "%Y")) == (configured, files)

    there = (bystander, first, second, toolkit)
    before = [pod.containers() for pod in there]
    node.machine.run("systemctl restart containerd")
    assert life(node) != configured
    third = pods.workload("third", handler="nvidia")
    assert went_through_the_double(node, third)
    assert [pod.containers() for pod in there] == before
    assert [restarts for rows in before for _, restarts in rows] == [0, 0, 0, 0]
    assert configuration(node, "%a", "%i", "%Y") == files


def test_nvidias_own_runtime_gives_a_pod_its_cdi_device_after_an_upgrade_without_a_restart(
    node: KubeNode, pods: Pods
) -> None:
    provided(gotools.programs)
    mode = {"NVIDIA_CONTAINER_RUNTIME_MODE": "cdi"}
    old = pods.toolkit("old", DOUBLES, mode)
    kept = pods.workload("kept", handler="nvidia")
    configured = life(node)
    old.delete()

    pods.toolkit("new", NVIDIAS, mode)
    assert life(node) == configured
    node.machine.put("/var/run/cdi/bench.json", json.dumps(CDI))
    chosen = {"NVIDIA_VISIBLE_DEVICES": "bench.test/gpu=0"}
    given = pods.workload("given", handler="nvidia", environment=chosen)
    without = pods.workload("without", environment=chosen)
    assert not went_through_the_double(node, given)
    assert "BENCH_GPU=zero" in given.logs()
    assert "1,   3" in given.logs()
    assert "BENCH_GPU" not in without.logs()
    assert kept.containers()[0][1] == 0


def test_an_uninstall_gives_the_files_back_and_leaves_pods_alone(node: KubeNode, pods: Pods) -> None:
    toolkit = pods.toolkit("last", DOUBLES, {"TOOLKIT_REVERT_ON": "stop"})
    bystander, user = pods.workload("bystander"), pods.workload("user", handler="nvidia")
    before = [bystander.containers(), user.containers()]
    toolkit.delete()
    pods.workload("after")
    assert [bystander.containers(), user.containers()] == before
    assert node.machine.run("cat /etc/containerd/config.toml").stdout == node.configuration
    assert "nvidia" not in node.machine.run("containerd config dump; find /etc/containerd").stdout
    # the manifest serves nodes of any runtime, and leaves nothing for one that this node does not have
    others = ("/etc/crio", "/etc/docker", "/usr/share/containers", "/etc/containerd/conf.d")
    assert node.machine.run(f"ls -d {' '.join(others)}", check=False).stdout == ""


def test_the_machine_keeps_its_kernel_settings(node: KubeNode, kernel: dict[str, str]) -> None:
    """A kubelet writes kernel.panic and others: it met files of the node."""
    assert node.machine.run("cat /proc/sys/kernel/panic").stdout == "10\n"
    assert kernel_settings() == kernel
