"""From an NVIDIADriver to loaded modules on a real node: every part is real but the driver and the GPU.

API server, controllers, kubelet, containerd, systemd, a kernel; the operator with the chart's rights; a
driver image that `driverforge build` made, pulled from a registry. The driver in it is a miniature, whose
modules are the bench's mocks; its libraries are NVIDIA's own. Nobody asks nvidia-smi: there is no GPU. The
runtime that the toolkit installs is a test double, so nothing comes into containers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from driverforge_core import nodekeys
from driverforge_core.cell import CellId
from driverforge_core.kernel import KernelRelease
from driverforge_core.tags import precompiled_tag
from support.cluster import kubernetes_build, rollout, toolkitpod
from support.cluster.guestnode import GuestNode
from support.cluster.kubelet import PAUSE, small_images
from support.cluster.kubernetes import Api, api_server
from support.cluster.operator import NAMESPACE, PODS, merge
from support.cluster.rollout import Rollout
from support.machines import dockerregistry, jitimage, kernels, ociarchive, store
from support.machines.engine import Engine, debian_base, find_or_start
from support.machines.kernels import Kernel
from support.samples.tinydriver import DRIVER
from support.skipping import provided

pytestmark = [
    pytest.mark.full(reason="controllers to compile, and a node's boot take minutes without KVM"),
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="filling a node's image store needs root"),
]

NODE = "node-guest"
TOOLKIT = "driverforge.test/toolkit:doubles"
VALIDATOR = f"{nodekeys.DEPLOY}operator-validator"  # the label that switches its pod
LOADED = "nvidia\nnvidia_modeset\nnvidia_uvm\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a site has before there is a cluster: a registry with a driver for its kernel."""

    kernel: Kernel
    cell: CellId
    registry: str  # HOST:PORT
    store: Path


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    found = provided(find_or_start)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def site(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    kernel = provided(lambda: kernels.newest("6.1"))
    cell = CellId.parse(f"debian12-amd64-{DRIVER}-{kernel.release}")
    # the toolkit's CDI specification is made of the libraries
    image = provided(lambda: jitimage.build(engine, str(cell), libraries=True))
    toolkit = provided(lambda: toolkitpod.kept(engine, debian_base(engine), reference=TOOLKIT))
    pause = small_images(folder)[0]
    made = provided(lambda: store.make({jitimage.NAME: image, PAUSE: pause, TOOLKIT: toolkit}).disk)
    with provided(lambda: dockerregistry.registry(folder / "registry")) as address:
        tag = str(precompiled_tag(cell.driver.branch, KernelRelease.parse(kernel.release), cell.os))
        ociarchive.push(image, address, "nvidia/driver", tag)
        yield Site(kernel=kernel, cell=cell, registry=address, store=made)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A cluster of its own, in which DaemonSets have pods."""
    programs, controllers = provided(kubernetes_build.programs), provided(kubernetes_build.controllers)
    folder = tmp_path_factory.mktemp("cluster")
    with api_server(programs, folder, nodes=(NODE,), controllers=controllers) as running:
        yield running


@pytest.fixture(scope="module")
def node(api: Api, site: Site) -> Iterator[GuestNode]:
    # what a node is made of may be missing; what goes wrong with it is no skip
    provided(rollout.parts_of_a_node)
    with rollout.guest_node(api, site.kernel, images=site.store, registry=site.registry) as made:
        yield made


@pytest.fixture(scope="module")
def work(node: GuestNode, site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollout]:
    """An operator whose driver is rolled out."""
    with rollout.rolling(node, tmp_path_factory.mktemp("operator")) as found:
        found.apply(rollout.nvidia_driver(site.cell, f"{site.registry}/nvidia", TOOLKIT))
        found.until_reason("Reconciled")
        yield found


@pytest.fixture(scope="module")
def configured(work: Rollout, node: GuestNode) -> Rollout:
    """A ClusterPolicy's toolkit has configured the node's runtime, and nothing validates the node yet."""
    merge(work.api, node.path, {"metadata": {"labels": {VALIDATOR: "false"}}})
    work.apply(rollout.cluster_policy(TOOLKIT))
    work.until(lambda: work.policy()[0] == "Reconciled", "ClusterPolicy Reconciled")
    # its pod counts as ready before it has done its work: upstream's objects have no probe of it
    work.until(lambda: _toolkit_is_done(node), "the toolkit has done its work")
    return work


def said_to_be_ready(work: Rollout) -> None:
    done = work.operator("explain", NODE)
    assert (done.status, "CLOSED" in done.stdout) == (0, False), done.stdout


def test_the_driver_is_loaded_and_its_node_is_ready(work: Rollout, node: GuestNode, site: Site) -> None:
    assert node.guest.run("lsmod | awk '/^nvidia/ { print $1 }' | sort").ok() == LOADED
    labels = node.object()["metadata"]["labels"]
    assert (labels[nodekeys.GPU_PRESENT], labels[nodekeys.DRIVER_OWNER]) == ("true", rollout.DRIVER)
    [pod] = work.driver_pods()
    [manager] = pod["status"]["initContainerStatuses"]
    assert manager["state"]["terminated"]["exitCode"] == 0
    [driver] = pod["status"]["containerStatuses"]
    assert (driver["restartCount"], driver["image"].partition("/")[0]) == (0, site.registry)
    said_to_be_ready(work)


def test_a_version_that_nobody_built_changes_nothing_and_is_told_how_to_build(
    work: Rollout, site: Site
) -> None:
    other = site.cell.driver.branch - 1
    before, pods = work.daemonsets(), work.driver_pods()
    work.change(version=str(other))
    missing = work.until_reason("ImageMissing")
    assert f"driverforge build --select 'debian12-amd64-{other}.*-{site.kernel.release}'" in missing
    assert [one["spec"] for one in work.daemonsets().values()] == [one["spec"] for one in before.values()]
    assert [one["metadata"]["uid"] for one in work.driver_pods()] == [one["metadata"]["uid"] for one in pods]
    said_to_be_ready(work)
    work.change(version=str(site.cell.driver.branch))
    work.until_reason("Reconciled")


def test_a_node_on_the_old_driver_moves_on_by_the_command_that_is_told(
    work: Rollout, node: GuestNode
) -> None:
    [old] = work.driver_pods()
    work.change(env=[rollout.WITHOUT_GPU, {"name": "ANOTHER", "value": "configuration"}])
    work.until(lambda: "on the old driver" in work.operator("explain", NODE).stdout, "explain tells of it")
    told = work.operator("status").stdout
    name = old["metadata"]["name"]
    assert f"kubectl delete pod -n {NAMESPACE} {name}" in told
    # nothing was done to it
    assert [one["metadata"]["uid"] for one in work.driver_pods()] == [old["metadata"]["uid"]]

    assert work.api.request("DELETE", f"{PODS}/{name}").ok
    work.until(lambda: "on the old driver" not in work.operator("status").stdout, "no node is old")
    work.until(lambda: work.condition()[0] == "Reconciled" and _new(work, old), "the new pod Ready")
    assert node.guest.run("lsmod | awk '/^nvidia/ { print $1 }' | sort").ok() == LOADED
    said_to_be_ready(work)


def _new(work: Rollout, old: dict[str, Any]) -> bool:
    """Whether one pod is there, and is another one."""
    return [one["metadata"]["uid"] != old["metadata"]["uid"] for one in work.driver_pods()] == [True]


def test_the_toolkit_gives_the_nodes_runtime_what_the_validated_driver_has(
    configured: Rollout, node: GuestNode, site: Site
) -> None:
    # what the validator's pod checks after the driver takes a GPU: the next test
    [toolkit] = configured.pods("app=nvidia-container-toolkit-daemonset")
    [container] = toolkit["status"]["containerStatuses"]
    assert (container["ready"], container["restartCount"]) == (True, 0)
    ready = node.guest.run("cat /run/nvidia/validations/driver-ready").ok()
    assert "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\n" in ready
    said_to_be_ready(configured)

    runtime = node.guest.run("containerd config dump | grep -A 20 'runtimes.nvidia]'").ok()
    assert 'BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"' in runtime
    spec = node.guest.run("cat /var/run/cdi/management.nvidia.com-gpu.yaml").ok()
    assert f"/libcuda.so.{site.cell.driver}\n" in spec
    labels = node.object()["metadata"]["labels"]
    assert (labels[VALIDATOR], labels[f"{nodekeys.DEPLOY}container-toolkit"]) == ("false", "true")


def _toolkit_is_done(node: GuestNode) -> bool:
    """By its own word; a second's pause: each look costs the guest's processors a part of one."""
    return node.guest.run("sleep 1; grep -q ready /run/nvidia/toolkit/status.json").rc == 0


def test_the_validator_gets_as_far_as_one_can_without_a_gpu_and_explain_says_where(
    configured: Rollout, node: GuestNode
) -> None:
    work = configured
    # the operator sets what is not there
    merge(work.api, node.path, {"metadata": {"labels": {VALIDATOR: None}}})
    work.until(lambda: _driver_is_validated(work), "the validator's first check ends well")
    closed = {
        "because the gate 'validator' is closed on container toolkit-validation of pod",
        # a toolkit that ended once, as on a busy machine, is what to look at before who waits for it
        "because the gate 'toolkit' is closed on container nvidia-container-toolkit-ctr of pod",
    }
    work.until(
        lambda: any(words in work.operator("explain", NODE).stdout for words in closed), "its gate is told"
    )
    # its RuntimeClass is the handler that the toolkit made: the double behind it was asked for each container
    assert "nvidia-container-runtime" in node.guest.run(f"cat {toolkitpod.LOG}").ok()
    _said(work, node, "driver-validation", "no GPU was tested")
    _said(work, node, "toolkit-validation", "did not put the driver into")

    reason, message = work.policy()
    assert reason == "OperandNotReady"
    assert "states not ready: [state-operator-validation]" in message
    assert work.condition()[0] == "Reconciled"


def _said(work: Rollout, node: GuestNode, container: str, text: str) -> None:
    """Wait for a line in the log of a container, which may have begun a moment ago."""
    look = f"sleep 1; grep -q '{text}' /var/log/pods/*nvidia-operator-validator-*/{container}/*.log"
    work.until(lambda: node.guest.run(look).rc == 0, f"{container} says {text!r}")


def _driver_is_validated(work: Rollout) -> bool:
    checks = (
        one
        for pod in work.pods("app=nvidia-operator-validator")
        for one in pod["status"].get("initContainerStatuses", ())
        if one["name"] == "driver-validation"
    )
    return any(one["state"].get("terminated", {}).get("exitCode") == 0 for one in checks)
