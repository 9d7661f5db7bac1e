"""From an NVIDIADriver to loaded modules on a real node: every part is real but the driver and the GPU.

API server, controllers, kubelet, containerd, systemd, a kernel; the operator with the chart's rights; a
driver image that `driverforge build` made, pulled from a registry. The driver in it is a miniature, whose
modules are the bench's mocks, and nobody asks nvidia-smi: there is no GPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_core import nodekeys
from driverforge_core.cell import CellId
from driverforge_core.kernel import KernelRelease
from driverforge_core.tags import precompiled_tag
from support.cluster import kubernetes_build, rollout, toolkitpod
from support.cluster.guestnode import GuestNode
from support.cluster.kubelet import PAUSE, small_images
from support.cluster.kubernetes import Api, api_server
from support.cluster.operator import merge
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
    image = provided(lambda: jitimage.build(engine, str(cell)))
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
    assert f"driverforge build --select 'debian12-amd64-{other}*-{site.kernel.release}'" in missing
    assert [one["spec"] for one in work.daemonsets().values()] == [one["spec"] for one in before.values()]
    assert [one["metadata"]["uid"] for one in work.driver_pods()] == [one["metadata"]["uid"] for one in pods]
    said_to_be_ready(work)
    work.change(version=str(site.cell.driver.branch))
    work.until_reason("Reconciled")


def test_the_validator_finds_the_driver_and_opens_the_toolkits_gate(work: Rollout, node: GuestNode) -> None:
    # what a pod computes on a GPU cannot be validated where there is none
    switch = f"{nodekeys.DEPLOY}operator-validator"
    merge(work.api, node.path, {"metadata": {"labels": {switch: "false"}}})
    work.apply(rollout.cluster_policy(TOOLKIT))
    # no further: the miniature has no libraries, and the toolkit refuses a driver without
    file = "/run/nvidia/validations/driver-ready"
    work.until(lambda: node.guest.run(f"test -s {file}").rc == 0, file)
    ready = node.guest.run(f"cat {file}").ok()
    assert "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\n" in ready
