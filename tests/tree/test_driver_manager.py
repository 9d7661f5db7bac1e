"""`driver-manager uninstall_driver`: a driver's container starts where it does no harm, else is told why."""

from __future__ import annotations

from pathlib import Path

import pytest

from driverforge_core.errors import InUse
from driverforge_driver.app.driver_removal import Removal, may_install
from driverforge_driver.state import paths
from driverforge_host.ports import LoadedModule
from driverforge_operator.explain.causes import likely
from support.fakes.fakecluster import FakeCluster
from support.fakes.fakehost import NODE, FakeNode, FakeProcess, fake_node

NODE_PATH = "/api/v1/nodes/n1"


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return fake_node(tmp_path)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(objects={NODE_PATH: {"metadata": {"name": "n1", "labels": {"keep": "me"}}}})


def load(node: FakeNode, digest: str = "") -> None:
    node.kernel.loaded_modules["nvidia"] = LoadedModule(
        name="nvidia", refcount=0, holders=(), version="580.65.06", state="Live"
    )
    node.kernel.show()
    node.files.write_atomic("/sys/module/nvidia/version", b"580.65.06\n")
    if digest:
        node.files.write_atomic(paths.DIGEST, f"{digest}\n".encode())


def put_host_driver(node: FakeNode) -> None:
    node.host.node.make_dirs("/usr/bin")
    node.host.node.write_atomic("/usr/bin/nvidia-smi", b"")
    node.commands.programs["chroot"] = lambda words: (0, f"GPU 0 of {words[0]}\n", "")


def asked(node: FakeNode, cluster: FakeCluster, digest: str, *, force: bool = False) -> str:
    return may_install(node.host, lambda: cluster, Removal(node_name="n1", digest=digest, force=force))


def test_without_a_driver_the_container_may_start(node: FakeNode, cluster: FakeCluster) -> None:
    assert asked(node, cluster, "2") == "no driver is loaded"


def test_the_wanted_driver_stays(node: FakeNode, cluster: FakeCluster) -> None:
    load(node, "1")
    assert "digest 1" in asked(node, cluster, "1")


@pytest.mark.parametrize(
    ("stored", "wanted", "force"), [("1", "2", False), ("1", "1", True), ("", "", False)]
)
def test_another_driver_is_refused_with_who_uses_it(
    node: FakeNode, cluster: FakeCluster, stored: str, wanted: str, force: bool
) -> None:
    load(node, stored)
    node.processes.add(FakeProcess(pid=77, command="train", holds=("/dev/nvidia0",), pod="p-1"))
    with pytest.raises(InUse) as caught:
        asked(node, cluster, wanted, force=force)
    assert "580.65.06" in caught.value.brief
    assert "in use by train (process 77, pod p-1): /dev/nvidia0" in caught.value.details
    assert "kubectl drain n1" in caught.value.resolution
    said = (caught.value.brief, *caught.value.details, caught.value.resolution)
    assert likely(said, "k8s-driver-manager").id == "driver-stays"
    assert cluster.calls == []


def test_a_node_with_a_driver_of_its_own_is_left_to_it(node: FakeNode, cluster: FakeCluster) -> None:
    load(node)
    put_host_driver(node)
    with pytest.raises(InUse) as caught:
        asked(node, cluster, "2")
    assert caught.value.details == (f"its nvidia-smi says: GPU 0 of {NODE}",)
    labels = cluster.objects[NODE_PATH]["metadata"]["labels"]
    assert labels == {"keep": "me", "nvidia.com/gpu.deploy.driver": "pre-installed"}


def test_a_containers_driver_is_not_taken_for_the_nodes_own(node: FakeNode, cluster: FakeCluster) -> None:
    """Files that a package left on the node count for nothing while a container's driver is loaded."""
    load(node, "1")
    put_host_driver(node)
    assert "digest 1" in asked(node, cluster, "1")
    assert cluster.calls == []
