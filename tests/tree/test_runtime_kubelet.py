"""What the kubelet's word is where it is said twice, or is another one's, on a fake node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_core.errors import Unavailable
from driverforge_host.ports import Connection
from driverforge_toolkit.doctor import gather_runtime
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.find import selection
from driverforge_toolkit.runtime.find.kubelet import kubelet_endpoints
from driverforge_toolkit.runtime.model import DaemonPath, NodePath, Supervisor
from driverforge_toolkit.runtime.request import RuntimeRequest, wanted_handlers
from support.fakes.fakecontainerd import SOCKET, FakeContainerd
from support.fakes.fakehost import FakeNode, fake_node
from support.fakes.fakeruntimes import process

CRIO_SOCKET = "/run/crio/crio.sock"
ENDPOINT = "--container-runtime-endpoint"
FLAGS, CONFIGURATION = "/var/lib/kubelet/kubeadm-flags.env", "/var/lib/kubelet/config.yaml"


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = fake_node(tmp_path, gpu=False)
    write(made, "/proc/1/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n")
    return made


def write(node: FakeNode, path: str, text: str) -> None:
    node.host.node.make_dirs(path.rpartition("/")[0])
    node.host.node.write_atomic(path, text.encode())


def sockets(node: FakeNode) -> list[str]:
    return [endpoint.socket for endpoint in kubelet_endpoints(node.host)]


def test_of_several_values_in_a_file_the_last_one_counts(node: FakeNode) -> None:
    write(node, "/etc/default/kubelet", f"A={ENDPOINT}={SOCKET}\nB={ENDPOINT}={CRIO_SOCKET}\n")
    assert sockets(node) == [CRIO_SOCKET]


def test_flags_in_a_file_go_before_the_configuration(node: FakeNode) -> None:
    write(node, FLAGS, f"A={ENDPOINT}={CRIO_SOCKET}\n")
    write(node, CONFIGURATION, f"containerRuntimeEndpoint: unix://{SOCKET}\n")
    assert sockets(node) == [CRIO_SOCKET]


def test_a_key_in_a_comment_does_not_count(node: FakeNode) -> None:
    write(node, CONFIGURATION, f"containerRuntimeEndpoint: {CRIO_SOCKET}\n# containerRuntimeEndpoint: /x\n")
    assert sockets(node) == [CRIO_SOCKET]


@pytest.mark.parametrize("endpoint", ["npipe:////./pipe/containerd", "tcp://127.0.0.1:3735"])
def test_an_endpoint_that_is_no_unix_socket_says_nothing(node: FakeNode, endpoint: str) -> None:
    process(node, 70, "kubelet", "/usr/bin/kubelet", f"{ENDPOINT}={endpoint}")
    assert sockets(node) == []
    write(node, CONFIGURATION, f'containerRuntimeEndpoint: "{endpoint}"\n')
    assert sockets(node) == []


def test_a_kubelet_whose_file_system_the_node_does_not_see_is_another_nodes(node: FakeNode) -> None:
    process(node, 70, "kubelet", "/usr/bin/kubelet", f"{ENDPOINT}={CRIO_SOCKET}")
    node.host.node.symlink("mnt:[2]", "/proc/70/ns/mnt")
    write(node, "/proc/70/mountinfo", "9 0 0:77 / / rw - overlay overlay rw\n")
    assert sockets(node) == []
    write(node, "/proc/70/mountinfo", "9 0 8:1 / / rw - ext4 /dev/sda1 rw\n")
    assert sockets(node) == [CRIO_SOCKET]


def test_a_socket_is_the_one_that_a_link_leads_to(node: FakeNode) -> None:
    write(node, CRIO_SOCKET, "")
    node.host.node.symlink(CRIO_SOCKET, "/run/cri.sock")
    process(node, 70, "kubelet", "/usr/bin/kubelet", f"{ENDPOINT}=unix:///run/cri.sock")
    assert sockets(node) == [CRIO_SOCKET]


def test_a_shim_whose_socket_systemd_opened_means_its_own_docker(node: FakeNode) -> None:
    words = (f"{ENDPOINT}=fd://", "--docker-endpoint=unix:///run/d/docker.sock")
    process(node, 71, "cri-dockerd", "/usr/bin/cri-dockerd", *words)
    process(node, 70, "kubelet", "/usr/bin/kubelet", f"{ENDPOINT}=unix:///run/cri-dockerd.sock")
    assert sockets(node) == ["/run/d/docker.sock"]


def test_two_kubelets_that_use_different_runtimes_say_nothing_of_the_one_that_is_meant(
    node: FakeNode,
) -> None:
    process(node, 70, "kubelet", "/usr/bin/kubelet", f"{ENDPOINT}={SOCKET}")
    process(node, 71, "kubelet", "/usr/bin/kubelet", f"{ENDPOINT}={SOCKET}")
    told = selection.kubelet_endpoint(node.host)
    assert told is not None
    assert told.socket == SOCKET
    process(node, 72, "k0s", "/usr/local/bin/k0s", f"{ENDPOINT}={CRIO_SOCKET}")
    assert selection.kubelet_endpoint(node.host) is None


@pytest.mark.parametrize("asked", [SOCKET, "/run/link.sock"])
def test_what_the_kubelet_uses_anyway_contradicts_nothing(node: FakeNode, asked: str) -> None:
    containerd = FakeContainerd(node=node)
    node.host.node.symlink(SOCKET, "/run/link.sock")
    process(node, 70, "kubelet", "/usr/bin/kubelet", f"{ENDPOINT}={SOCKET}")
    request = RuntimeRequest(wanted=wanted_handlers(), socket=NodePath(asked))
    daemon = selection.select(node.host, containerd, request)
    assert selection.contradiction(node.host, daemon, request) == ""


@dataclass
class WithoutCrio:
    """A containerd that answers, on a node whose CRI-O is down."""

    containerd: FakeContainerd

    @contextmanager
    def connect(self, path: str, *, timeout: float) -> Iterator[Connection]:
        if path.endswith("crio.sock"):
            raise Unavailable(f"nothing answers at {path}")
        with self.containerd.connect(path, timeout=timeout) as peer:
            yield peer


def test_a_runtime_that_is_asked_for_is_taken_while_the_kubelets_is_down(node: FakeNode) -> None:
    answering = WithoutCrio(FakeContainerd(node=node))
    process(node, 70, "kubelet", "/usr/bin/kubelet", f"{ENDPOINT}={CRIO_SOCKET}")
    request = RuntimeRequest(wanted=wanted_handlers(), runtime="containerd")
    assert selection.select(node.host, answering, request).socket == SOCKET


def test_where_nobody_asked_for_a_runtime_what_runs_is_taken_and_the_file_named(node: FakeNode) -> None:
    """The kubelet's file is left from another time, and the runtime that it names is gone."""
    answering = WithoutCrio(FakeContainerd(node=node))
    write(node, FLAGS, f"A={ENDPOINT}={CRIO_SOCKET}\n")
    request = RuntimeRequest(wanted=wanted_handlers())
    daemon = selection.select(node.host, answering, request)
    assert daemon.socket == SOCKET
    told = selection.contradiction(node.host, daemon, request)
    assert told.startswith(f"{FLAGS} names {CRIO_SOCKET}, where nothing answers")


def test_a_socket_that_is_asked_for_and_not_there_is_told_with_the_kubelets(node: FakeNode) -> None:
    answering = WithoutCrio(FakeContainerd(node=node))
    process(node, 70, "kubelet", "/usr/bin/kubelet", f"{ENDPOINT}={SOCKET}")
    request = RuntimeRequest(wanted=wanted_handlers(), socket=NodePath(CRIO_SOCKET))
    with pytest.raises(Unavailable) as caught:
        selection.select(node.host, answering, request)
    assert f"the kubelet uses {SOCKET} (" in caught.value.details[-1]


def test_a_file_of_a_command_line_is_below_the_kubelets_own_folder(node: FakeNode) -> None:
    process(node, 70, "kubelet", "/usr/bin/kubelet", "--config=k.yaml")
    node.host.node.symlink("/opt/kubelet", "/proc/70/cwd")
    write(node, "/opt/kubelet/k.yaml", f"containerRuntimeEndpoint: {CRIO_SOCKET}\n")
    assert sockets(node) == [CRIO_SOCKET]


def test_our_change_of_crio_is_found_whatever_somebody_calls_its_root_file(node: FakeNode) -> None:
    entry = journal.JournalEntry(
        kind="crio",
        socket=NodePath(CRIO_SOCKET),
        binary=DaemonPath("/usr/bin/crio"),
        config=NodePath("/etc/crio/crio.conf"),
        drop_in=NodePath("/etc/crio/crio.conf.d/99-nvidia.toml"),
        supervisor=Supervisor(kind=""),
        handlers=(),
        files=(),
        state="written",
    )
    journal.write_entry(node.host, entry)
    request = RuntimeRequest(wanted=wanted_handlers(), config=NodePath("/etc/crio/config.toml"))
    assert selection.fitting_entries(node.host, request) == [entry]
    assert selection.fitting_entries(node.host, replace(request, runtime="docker")) == []


def test_the_doctor_tells_a_kubelet_that_says_nothing_from_none(node: FakeNode) -> None:
    assert gather_runtime.kubelet(node.host) is None
    process(node, 70, "kubelet", "/usr/bin/kubelet")
    assert gather_runtime.kubelet(node.host) == ()


@pytest.mark.parametrize("path", [FLAGS, CONFIGURATION])
def test_the_doctor_knows_a_kubelet_by_its_files(node: FakeNode, path: str) -> None:
    assert gather_runtime.kubelet_by_files(node.host.node) is None
    write(node, path, "# nothing of a runtime\n")
    assert gather_runtime.kubelet_by_files(node.host.node) == ()
