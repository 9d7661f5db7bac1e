"""docs/kubernetes/toolkit.yaml as it is, on nodes with containerd, CRI-O or docker: what the pod works on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from driverforge_core.errors import NotPermitted, Unavailable
from driverforge_host.ports import Connection, Sockets
from driverforge_toolkit.runtime.find import selection
from driverforge_toolkit.runtime.find.kubelet import kubelet_endpoints
from driverforge_toolkit.runtime.request import RuntimeRequest
from driverforge_toolkit.toolkit.release_plan import layout_of
from driverforge_toolkit.toolkit.runtime_request import request_of
from driverforge_toolkit.toolkit.settings import settings_of
from support.cluster import toolkitpod
from support.fakes.fakecontainerd import CONFIG, DROP_IN, SOCKET, FakeContainerd
from support.fakes.fakehost import FakeNode, fake_node
from support.fakes.fakeruntimes import Silent, process, with_docker

CRIO = 60  # its PID
CRIO_SOCKET = "/run/crio/crio.sock"
SHIM_SOCKET = "/run/cri-dockerd.sock"
K3S_SOCKET = "/run/k3s/containerd/containerd.sock"
CRIO_FILES = ("crio", CRIO_SOCKET, "/etc/crio/crio.conf", "/etc/crio/crio.conf.d/99-nvidia.toml")
DOCKER_FILES = ("docker", "/run/docker.sock", "/etc/docker/daemon.json", "")
OURS = ("/run/nvidia", "/usr/local/nvidia", "/var/run/cdi")  # folders that the kubelet makes for the pod


def pod() -> dict[str, Any]:
    found: dict[str, Any] = toolkitpod.daemonset()["spec"]["template"]["spec"]
    return found


def environment() -> dict[str, str]:
    (container,) = pod()["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"]}


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = fake_node(tmp_path, gpu=False)
    for number in ("self", "1"):
        made.host.files.make_dirs(f"/proc/{number}")
        made.host.files.write_atomic(f"/proc/{number}/mountinfo", b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n")
    return made


class WithCrio:
    """A CRI-O, beside a containerd."""

    def __init__(self, node: FakeNode, containerd: FakeContainerd) -> None:
        self.containerd = containerd
        process(node, CRIO, "crio", "/usr/bin/crio")
        node.host.node.make_dirs("/run/crio")
        node.host.node.write_atomic(CRIO_SOCKET, b"")

    @contextmanager
    def connect(self, path: str, *, timeout: float) -> Iterator[Connection]:
        with self.containerd.connect(path, timeout=timeout) as peer:
            if path.endswith("crio.sock"):
                peer.pid = CRIO
            yield peer


def kubelet(node: FakeNode, *words: str) -> None:
    process(node, 70, "kubelet", "/usr/bin/kubelet", *words)


def request_with(environ: Mapping[str, str], node: FakeNode) -> RuntimeRequest:
    settings = settings_of({}, {**environment(), **environ})
    return request_of(node.host, settings, layout_of(settings))


def works_on(
    node: FakeNode, sockets: Sockets, environ: Mapping[str, str] | None = None
) -> tuple[str, str, str, str]:
    daemon = selection.select(node.host, sockets, request_with(environ or {}, node))
    return daemon.kind, daemon.socket, daemon.config, daemon.drop_in


def test_the_manifest_names_nothing_of_one_runtime() -> None:
    """So that the kubelet makes no folder for a runtime that a node does not have."""
    assert not {
        name for name in environment() if name.startswith(("RUNTIME", "CONTAINERD", "CRIO", "DOCKER"))
    }
    made = [
        each["hostPath"] for each in pod()["volumes"] if each["hostPath"].get("type", "").endswith("OrCreate")
    ]
    assert [path["path"] for path in made if not path["path"].startswith(OURS)] == []


def test_each_runtime_is_found_with_its_own_files(node: FakeNode, tmp_path: Path) -> None:
    containerd = FakeContainerd(node=node)
    assert works_on(node, containerd) == ("containerd", SOCKET, CONFIG, DROP_IN)
    kubelet(node, f"--container-runtime-endpoint=unix://{SOCKET}")
    assert works_on(node, WithCrio(node, containerd)) == ("containerd", SOCKET, CONFIG, DROP_IN)
    kubelet(node, f"--container-runtime-endpoint=unix://{CRIO_SOCKET}")
    assert works_on(node, WithCrio(node, containerd)) == CRIO_FILES


@pytest.mark.parametrize(
    "endpoint", ["unix:///var/run/cri-dockerd.sock", "unix:///run/dockershim.sock", "/run/cri-dockerd.sock"]
)
def test_cri_dockerd_means_docker(node: FakeNode, endpoint: str) -> None:
    """Although the containerd beside it, which is docker's, would serve pods."""
    sockets = with_docker(node, FakeContainerd(node=node))
    kubelet(node, "--container-runtime-endpoint", endpoint)
    assert works_on(node, sockets) == DOCKER_FILES


def test_a_cri_dockerd_with_names_of_its_own_means_its_docker(node: FakeNode) -> None:
    sockets = with_docker(node, FakeContainerd(node=node))
    words = (
        "--container-runtime-endpoint",
        "unix:///run/shim",
        "--docker-endpoint",
        "unix:///run/d/docker.sock",
    )
    process(node, 71, "cri-dockerd", "/usr/bin/cri-dockerd", *words)
    kubelet(node, "--container-runtime-endpoint=unix:///run/shim")
    node.host.node.make_dirs("/run/d")
    node.host.node.write_atomic("/run/d/docker.sock", b"")
    assert works_on(node, sockets)[:2] == ("docker", "/run/d/docker.sock")


CONFIGURATION = "kind: KubeletConfiguration\n# containerRuntimeEndpoint: unix:///commented\n"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"/k.yaml": f"{CONFIGURATION}containerRuntimeEndpoint: unix://{CRIO_SOCKET} # why\n"},
            ["--config", "/k.yaml"],
        ),
        (
            {"/k.json": f'{{"containerRuntimeEndpoint": "unix://{CRIO_SOCKET}", "x": 1}}'},
            ["--config=/k.json"],
        ),
        (
            {
                "/k.yaml": f'containerRuntimeEndpoint: "unix://{SOCKET}"\n',
                "/k.d/10-a.conf": "containerRuntimeEndpoint: ''\n",
                "/k.d/20-b.conf": f"containerRuntimeEndpoint: {CRIO_SOCKET}\n",
                "/k.d/30-c.yaml": f"containerRuntimeEndpoint: {SOCKET}\n",
            },
            ["--config=/k.yaml", "--config-dir=/k.d"],
        ),
        (
            {"/k.yaml": f"containerRuntimeEndpoint: {SOCKET}\n"},
            [
                "--config=/k.yaml",
                f"--container-runtime-endpoint={SOCKET}",
                f"--container-runtime-endpoint={CRIO_SOCKET}",
            ],
        ),
        (
            {
                "/var/lib/kubelet/kubeadm-flags.env": (
                    f'ARGS="--container-runtime-endpoint=unix://{CRIO_SOCKET} --x=y"\n'
                )
            },
            [],
        ),
        (
            {
                "/etc/default/kubelet": f"#KUBELET_EXTRA_ARGS=--container-runtime-endpoint={SOCKET}\n",
                "/var/lib/kubelet/config.yaml": f"containerRuntimeEndpoint: unix://{CRIO_SOCKET}\n",
            },
            [],
        ),
    ],
    ids=["config", "json", "config-dir", "flag", "kubeadm", "usual-file"],
)
def test_the_kubelets_word_counts_wherever_it_stands(
    node: FakeNode, files: Mapping[str, str], words: list[str]
) -> None:
    for path, text in files.items():
        node.host.node.make_dirs(path.rpartition("/")[0] or "/")
        node.host.node.write_atomic(path, text.encode())
    kubelet(node, *words)
    assert works_on(node, WithCrio(node, FakeContainerd(node=node))) == CRIO_FILES


def test_a_kubelet_of_another_node_says_nothing_of_this_one(node: FakeNode) -> None:
    """kind's nodes are containers: their processes are seen here, and their sockets are not."""
    containerd = FakeContainerd(node=node)
    kubelet(node, f"--container-runtime-endpoint=unix://{CRIO_SOCKET}")
    files = node.host.node
    files.symlink("mnt:[2]", "/proc/70/ns/mnt")
    files.write_atomic("/proc/70/mountinfo", b"9 0 0:77 / / rw - overlay overlay rw\n")
    assert works_on(node, containerd)[0] == "containerd"


def test_another_runtime_than_the_kubelets_is_what_was_asked_for_and_both_are_named(node: FakeNode) -> None:
    sockets = WithCrio(node, FakeContainerd(node=node))
    kubelet(node, f"--container-runtime-endpoint=unix://{CRIO_SOCKET}")
    request = request_with({"RUNTIME": "containerd"}, node)
    daemon = selection.select(node.host, sockets, request)
    assert daemon.socket == SOCKET
    assert daemon.evidence[:2] == (
        "chosen: RUNTIME says containerd: the only containerd that runs here",
        f"kubelet: uses {CRIO_SOCKET} (--container-runtime-endpoint of kubelet, PID 70), not this runtime",
    )
    assert selection.contradiction(node.host, daemon, request) == (
        f"RUNTIME says containerd, and the kubelet uses {CRIO_SOCKET} (--container-runtime-endpoint of "
        f"kubelet, PID 70): its pods get nothing of what is changed at {SOCKET}"
    )


def test_a_runtime_that_is_asked_for_and_not_there_is_told_with_the_kubelets(node: FakeNode) -> None:
    sockets = WithCrio(node, FakeContainerd(node=node))
    kubelet(node, f"--container-runtime-endpoint=unix://{CRIO_SOCKET}")
    with pytest.raises(Unavailable) as caught:
        works_on(node, sockets, {"RUNTIME": "docker"})
    assert any(
        line.startswith("RUNTIME says docker, and the kubelet uses /run/crio/crio.sock (")
        for line in caught.value.details
    )


def test_the_kubelets_runtime_that_is_down_is_not_exchanged_for_another_one(node: FakeNode) -> None:
    containerd = FakeContainerd(node=node)
    kubelet(node, "--container-runtime-endpoint=unix:///run/crio/crio.sock")

    with pytest.raises(Unavailable, match="no container runtime answers") as caught:
        works_on(node, Silent(CRIO_SOCKET, WithCrio(node, containerd)))
    assert "the kubelet uses /run/crio/crio.sock" in caught.value.details[-1]
    assert "systemctl start crio)" in caught.value.resolution
    assert "journalctl -u crio " in caught.value.resolution


@pytest.mark.parametrize("by_file", [True, False])
def test_the_kubelets_runtime_that_is_down_and_was_asked_for_is_no_contradiction(
    node: FakeNode, by_file: bool
) -> None:
    if by_file:
        node.host.node.make_dirs("/var/lib/kubelet")
        text = f"containerRuntimeEndpoint: {CRIO_SOCKET}\n"
        node.host.node.write_atomic("/var/lib/kubelet/config.yaml", text.encode())
    else:
        kubelet(node, f"--container-runtime-endpoint=unix://{CRIO_SOCKET}")
    sockets = Silent(CRIO_SOCKET, WithCrio(node, FakeContainerd(node=node)))
    with pytest.raises(Unavailable) as caught:
        works_on(node, sockets, {"RUNTIME": "crio"})
    assert caught.value.brief == f"no container runtime answers at {CRIO_SOCKET}"
    assert caught.value.details[-1].startswith(f"the kubelet uses {CRIO_SOCKET} (")
    assert "systemctl start crio)" in caught.value.resolution


@pytest.mark.parametrize(
    ("kind", "unit"), [("crio", "crio"), ("docker", "docker"), ("containerd", "containerd")]
)
def test_of_the_kind_that_was_asked_for_the_sockets_and_the_unit_are_named(
    node: FakeNode, kind: str, unit: str
) -> None:
    with pytest.raises(Unavailable) as caught:
        works_on(node, FakeContainerd(node=node, down=True), {"RUNTIME": kind})
    assert {path.rpartition("/")[2] for path in caught.value.brief.split() if path.startswith("/")} == {
        f"{kind}.sock"
    }
    assert f"systemctl start {unit})" in caught.value.resolution


def test_a_socket_that_we_may_not_ask_is_no_runtime_that_is_down(node: FakeNode) -> None:
    """As for who is not root: another runtime that answers is not taken for the only one."""
    sockets = with_docker(node, FakeContainerd(node=node))
    refused = Silent(SOCKET, sockets, NotPermitted("we may not connect", resolution="as root"))
    with pytest.raises(NotPermitted, match="we may not connect"):
        works_on(node, refused)


@pytest.mark.parametrize(
    ("path", "text", "named"),
    [
        ("kubeadm-flags.env", f"--container-runtime-endpoint=unix://{CRIO_SOCKET}\n", CRIO_SOCKET),
        ("config.yaml", f"containerRuntimeEndpoint: unix://{CRIO_SOCKET}\n", CRIO_SOCKET),
        ("kubeadm-flags.env", f"--container-runtime-endpoint=unix://{SHIM_SOCKET}\n", SHIM_SOCKET),
    ],
)
def test_a_file_that_a_kubelet_of_long_ago_left_binds_nobody_and_is_named(
    node: FakeNode, path: str, text: str, named: str
) -> None:
    node.host.node.make_dirs("/var/lib/kubelet")
    node.host.node.write_atomic(f"/var/lib/kubelet/{path}", text.encode())
    socket = DOCKER_FILES[1] if named == SHIM_SOCKET else CRIO_SOCKET
    sockets, request = Silent(socket, FakeContainerd(node=node)), request_with({}, node)
    daemon = selection.select(node.host, sockets, request)
    assert daemon.socket == SOCKET
    assert daemon.evidence[0] == "chosen: the only container runtime that runs here"
    assert daemon.evidence[1].startswith(f"kubelet: uses {named}")
    assert selection.contradiction(node.host, daemon, request).startswith(
        f"/var/lib/kubelet/{path} names {named}, where nothing answers, and no kubelet runs that says so: "
        f"{SOCKET} is taken"
    )


def test_files_of_an_earlier_kubelet_say_nothing_of_a_distribution_that_has_its_own(node: FakeNode) -> None:
    """k3s on a node that kubeadm had: the kubelet is inside of k3s, and reads none of these files."""
    files = node.host.node
    files.make_dirs("/etc/default")
    files.write_atomic("/etc/default/kubelet", f"--container-runtime-endpoint={SOCKET}\n".encode())
    files.make_dirs(K3S_SOCKET.rpartition("/")[0])
    files.write_atomic(K3S_SOCKET, b"")
    process(node, 70, "k3s-server", "/usr/local/bin/k3s", "server")
    assert [endpoint.socket for endpoint in kubelet_endpoints(node.host)] == []
    kubelet(node)
    assert [endpoint.socket for endpoint in kubelet_endpoints(node.host)] == [SOCKET]


@pytest.mark.parametrize("endpoint", [K3S_SOCKET, "/run/own.sock"])
def test_another_containerd_does_not_stand_in_for_the_kubelets_where_containerd_was_asked_for(
    node: FakeNode, endpoint: str
) -> None:
    """As while rke2 restarts, beside docker's containerd."""
    sockets = with_docker(node, FakeContainerd(node=node))
    kubelet(node, f"--container-runtime-endpoint=unix://{endpoint}")

    with pytest.raises(Unavailable, match="no container runtime answers") as caught:
        works_on(node, Silent(endpoint, sockets), {"RUNTIME": "containerd"})
    assert f"the kubelet uses {endpoint}" in caught.value.details[-1]
