"""Processes of pods and of users that call themselves what they are not, on a fake node."""

from __future__ import annotations

from pathlib import Path

import pytest

from driverforge_toolkit.runtime.find import kubelet, selection
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from support.fakes.fakecontainerd import SOCKET, FakeContainerd
from support.fakes.fakehost import FakeNode, fake_node
from support.fakes.fakeruntimes import EVERY_POWER, process

PODS_POWERS = 0xA80425FB  # of a container without securityContext
VOLUME = "/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/v"
LURE = f"unix://{VOLUME}/docker.sock"


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return fake_node(tmp_path, gpu=False)


def chosen(node: FakeNode) -> tuple[str, str]:
    """The socket that is worked on, and why."""
    daemon = selection.select(node.host, FakeContainerd(node=node), RuntimeRequest(wanted=wanted_handlers()))
    return daemon.socket, daemon.evidence[0]


def pretend(node: FakeNode, program: str, *words: str, powers: int = PODS_POWERS) -> None:
    process(node, 90, program, f"/usr/bin/{program}", *words, powers=powers)


@pytest.mark.parametrize("program", kubelet.KUBELETS)
def test_a_pod_that_calls_itself_a_kubelet_leads_nobody_to_its_socket(node: FakeNode, program: str) -> None:
    """The program behind that socket would be run, as root, for its version."""
    pretend(node, program, f"--container-runtime-endpoint={LURE}")
    assert chosen(node) == (SOCKET, "chosen: the only container runtime that runs here")
    assert not kubelet.has_kubelet(node.host.node)


def test_a_pod_with_every_power_in_a_user_namespace_of_its_own_is_no_kubelet(node: FakeNode) -> None:
    pretend(node, "kubelet", f"--container-runtime-endpoint={LURE}", powers=EVERY_POWER)
    node.host.node.symlink("user:[2]", "/proc/90/ns/user")
    assert chosen(node)[0] == SOCKET


def test_a_pod_that_calls_itself_cri_dockerd_does_not_stand_before_the_runtime(node: FakeNode) -> None:
    process(node, 70, "kubelet", "/usr/bin/kubelet", f"--container-runtime-endpoint=unix://{SOCKET}")
    pretend(node, kubelet.SHIM, f"--container-runtime-endpoint=unix://{SOCKET}", "--docker-endpoint", LURE)
    assert chosen(node)[0] == SOCKET
    pretend(node, kubelet.SHIM, "--docker-endpoint", LURE)
    (told,) = kubelet.kubelet_endpoints(node.host)
    assert (told.socket, told.shim) == (SOCKET, False)


def test_a_process_that_does_not_tell_its_powers_has_none(node: FakeNode) -> None:
    pretend(node, "kubelet", f"--container-runtime-endpoint={LURE}", powers=EVERY_POWER)
    node.host.node.remove("/proc/90/status")
    assert chosen(node)[0] == SOCKET


def test_folders_of_a_kubelet_that_lead_back_to_themselves_are_not_entered(node: FakeNode) -> None:
    """Of two such links there are 2^40 paths that the kernel would follow."""
    files = node.host.node
    files.make_dirs("/k.d/deeper")
    files.write_atomic("/k.d/deeper/a.conf", f"containerRuntimeEndpoint: unix://{SOCKET}\n".encode())
    for name in ("one", "two"):
        files.symlink("/k.d", f"/k.d/{name}")
    process(node, 70, "kubelet", "/usr/bin/kubelet", "--config-dir=/k.d")
    (told,) = kubelet.kubelet_endpoints(node.host)
    assert told.source == "/k.d/deeper/a.conf of kubelet, PID 70"
