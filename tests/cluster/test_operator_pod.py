"""The chart as a person installs it, on a real node: the operator's built image as its Deployment, and as the
Jobs of Helm's hooks.

API server, controllers, scheduler, kubelet and containerd are real. The nodes that the operator is about are
simulated, and tainted: nothing runs there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException
from typing import Any

import pytest

from driverforge_core import nodekeys
from support.cluster import kubernetes_build, podnetwork
from support.cluster.kubelet import KubeNode, RunningPod, kube_node
from support.cluster.kubernetes import OPERATOR, Api, api_server
from support.cluster.operator import LEASE, NAMESPACE, PODS, ROOT, add_driver, everything, merge
from support.helm import Helm, with_chart
from support.machines import operatorimage
from support.machines.engine import Engine, debian_base, find_or_start
from support.process import until
from support.skipping import provided
from support.upstream import helm as helm_program

sys.path.append(str(ROOT / "hack/lib"))
from bench.benchmarks.operator import POOLS, add

pytestmark = [
    pytest.mark.full(reason="controllers to compile, and an image to build"),
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="a node in a privileged container needs root"),
]

NODE = "node-bookworm"
PORT = 8080
MANY = 5000
LIMIT = 350  # MiB, the chart's own
TAINT = "driverforge.test/simulated"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nvidiadrivers.nvidia.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster whose one real node has the operator's image."""

    api: Api
    node: KubeNode
    helm: Helm
    image: str

    def run_helm(self, verb: str, *settings: str) -> str:
        chart = [] if verb == "uninstall" else [str(self.helm.chart), "--force-conflicts"]
        values = [word for one in settings for word in ("--set", one)]
        words = (verb, "driverforge", *chart, "--namespace", NAMESPACE, "--timeout", "5m", *values)
        return self.helm(*words).stdout

    def install(self, *settings: str) -> None:
        self.run_helm("install", "nfd.enabled=false", f"driverforge.image={self.image}", *settings)

    def pod(self) -> RunningPod:
        """The operator's, Ready."""
        until(self._names, "a pod of the Deployment")
        [name] = self._names()
        return RunningPod(node=self.node, namespace=NAMESPACE, name=name).until_ready()

    def _names(self) -> list[str]:
        listed = self.api.request("GET", f"{PODS}?labelSelector=app.kubernetes.io/component=operator")
        return [one["metadata"]["name"] for one in listed.body["items"]]

    def metric(self, pod: RunningPod, series: str) -> float:
        """Asked where Prometheus would: at the pod's own address."""
        with closing(HTTPConnection(pod.status()["podIP"], PORT, timeout=10)) as connection:
            try:
                connection.request("GET", "/metrics")
                said = connection.getresponse().read().decode()
            except (OSError, HTTPException):
                return 0
        lines = (line for line in said.splitlines() if line.startswith(f"{series} "))
        return next((float(line.split()[1]) for line in lines), 0)

    def memory(self, pod: RunningPod, old: str, new: str) -> str:
        """A file of the container's memory cgroup, by its name in version 1 and in version 2."""
        [(container, _)] = pod.containers()
        ours = container.removeprefix("containerd://")
        found = f"find /sys/fs/cgroup -path '*{ours}*' -name {old} -o -path '*{ours}*' -name {new}"
        return self.node.machine.run(f"cat $({found})").stdout.strip()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    found = provided(find_or_start)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A cluster of its own, in which Deployments and Jobs have pods."""
    programs, controllers = provided(kubernetes_build.programs), provided(kubernetes_build.controllers)
    with api_server(
        programs, tmp_path_factory.mktemp("cluster"), nodes=(NODE,), controllers=controllers
    ) as running:
        yield running


@pytest.fixture(scope="module")
def site(engine: Engine, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    kubelet, base = provided(kubernetes_build.kubelet), provided(lambda: debian_base(engine))
    binary = provided(helm_program.program)
    provided(operatorimage.wheels)
    folder = tmp_path_factory.mktemp("site")
    bench, image = operatorimage.build(engine, base, folder)
    archive = folder / "operator.tar"
    engine.docker("save", "--output", archive, image)
    bench.forget(image)
    config = folder / "kubeconfig"
    config.write_text(api.kubeconfig(OPERATOR))
    helm = with_chart(binary, folder, KUBECONFIG=str(config), NO_PROXY="127.0.0.1")
    service = api.request("GET", "/api/v1/namespaces/default/services/kubernetes").body["spec"]["clusterIP"]
    network = podnetwork.reached(service=service, server=api.port, port=PORT)
    with kube_node(engine, base, api, kubelet, folder, name=NODE, images=[archive], network=network) as node:
        yield Site(api=api, node=node, helm=helm, image=image)


@pytest.fixture
def namespace(api: Api) -> None:
    """As docs/operator-install.md has it made."""
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    assert api.apply(json.dumps(document)).ok
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    until(lambda: api.request("GET", account).ok, "the namespace's account")


def simulate(api: Api, count: int) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(partial(add, api, taint=TAINT), range(count)))


def keys(api: Api, number: int) -> Sequence[str]:
    """Labels and annotations of NVIDIA's on a simulated node."""
    found: dict[str, Any] = api.request("GET", f"/api/v1/nodes/bench-{number}").body["metadata"]
    both = {**found["labels"], **found.get("annotations", {})}
    return sorted(key for key in both if "nvidia.com/" in key and not key.startswith(nodekeys.FEATURE))


@pytest.mark.usefixtures("namespace")
def test_the_chart_lives_on_a_real_node_and_leaves_nothing(site: Site, api: Api) -> None:
    simulate(api, 2)
    before, untouched = everything(api), keys(api, 0)

    site.install("driver.nvidiaDriverCRD.enabled=true")
    pod = site.pod()
    until(lambda: site.metric(pod, "driverforge_operator_leader") == 1, "it leads")
    assert api.request("GET", LEASE).body["spec"]["holderIdentity"].startswith(pod.name)
    until(lambda: f"{nodekeys.DEPLOY}driver" in keys(api, 0), "a node is labelled")
    until(lambda: any(one.startswith("DaemonSet nvidia-gpu-driver") for one in everything(api)), "a driver")
    assert site.memory(pod, "memory.limit_in_bytes", "memory.max") == str(LIMIT << 20)
    log = pod.logs()
    assert "may not" not in log
    assert " 403 " not in log

    # an old definition, as another release leaves it: a hook's Job brings the new one
    merge(api, DEFINITION, {"spec": {"names": {"shortNames": ["old"]}}})
    site.run_helm("upgrade", "nfd.enabled=false", f"driverforge.image={site.image}")
    assert "nvdriver" in api.request("GET", DEFINITION).body["spec"]["names"]["shortNames"]
    assert not [one for one in everything(api) if one.startswith("Job ")]
    assert [restarts for _, restarts in site.pod().containers()] == [0]

    site.run_helm("uninstall")
    until(lambda: everything(api) == before, "nothing is left")
    assert keys(api, 0) == untouched
    assert api.request("DELETE", "/api/v1/nodes?labelSelector=pool").ok


@pytest.mark.usefixtures("namespace")
def test_thousands_of_nodes_fit_into_the_memory_that_the_chart_gives(site: Site, api: Api) -> None:
    site.install("driver.nvidiaDriverCRD.enabled=true", "driver.nvidiaDriverCRD.deployDefaultCR=false")
    for number in range(POOLS):
        add_driver(api, f"pool-{number}", nodeSelector={"pool": str(number)})
    simulate(api, MANY)
    pod = site.pod()
    known = partial(site.metric, series="driverforge_operator_nodes")
    until(lambda: known(pod) >= MANY, "it knows all", timeout=1200)
    first = usage(site, pod)
    # again from the start, with all of them there
    api.request("DELETE", pod.path)
    until(lambda: not pod.status(), "the end of the first pod")
    pod = site.pod()
    until(lambda: known(pod) >= MANY, "it knows all", timeout=600)
    until(lambda: site.metric(pod, "driverforge_operator_leader") == 1, "it leads", timeout=120)
    peaks = [first, usage(site, pod)]
    print(f"peaks of its cgroup: {peaks} MiB")
    assert max(peaks) < LIMIT
    site.run_helm("uninstall")


def usage(site: Site, pod: RunningPod) -> int:
    """The most that the container ever used, in MiB; it was neither killed nor started again."""
    assert [restarts for _, restarts in pod.containers()] == [0]
    assert "oom_kill 0" in site.memory(pod, "memory.oom_control", "memory.events")
    return int(site.memory(pod, "memory.max_usage_in_bytes", "memory.peak")) >> 20
