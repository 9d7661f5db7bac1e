"""docs/kubernetes/toolkit.yaml for other runtimes than containerd, edited as its comment says: what the pod
then works on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from driverforge_node.ports import Connection, Sockets
from driverforge_node.runtime.find import selection
from driverforge_node.toolkit.release_plan import layout_of
from driverforge_node.toolkit.runtime_request import request_of
from driverforge_node.toolkit.settings import settings_of
from support.cluster import toolkitpod
from support.fakes.fakecontainerd import CONFIG, DROP_IN, SOCKET, FakeContainerd
from support.fakes.fakehost import FakeNode, fake_node
from support.fakes.fakeruntimes import process, with_docker

CRIO = 60  # its PID


def edited(runtime: str) -> dict[str, Any]:
    """The DaemonSet for `runtime`: the variables that the comment names are gone, and what is called
    runtime-….
    """
    comment = " ".join(line for line in toolkitpod.MANIFEST.read_text().splitlines() if line.startswith("#"))
    removed = re.findall(r"\bRUNTIME_\w+", comment)
    found = toolkitpod.daemonset()
    pod = found["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container["env"] = [
        {"name": "RUNTIME", "value": runtime} if entry["name"] == "RUNTIME" else entry
        for entry in container["env"]
        if entry["name"] not in removed
    ]
    for each, key in ((container, "volumeMounts"), (pod, "volumes")):
        each[key] = [item for item in each[key] if not item["name"].startswith("runtime-")]
    return found


def environment(daemonset: dict[str, Any]) -> dict[str, str]:
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"]}


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = fake_node(tmp_path, gpu=False)
    for number in ("self", "1"):
        made.host.files.make_dirs(f"/proc/{number}")
        made.host.files.write_atomic(f"/proc/{number}/mountinfo", b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n")
    return made


class WithCrio:
    """A CRI-O beside a containerd that serves no pods."""

    def __init__(self, node: FakeNode) -> None:
        self.containerd = FakeContainerd(node=node)
        process(node, CRIO, "crio", "/usr/bin/crio")
        node.host.node.make_dirs("/run/crio")
        node.host.node.write_atomic("/run/crio/crio.sock", b"")

    @contextmanager
    def connect(self, path: str, *, timeout: float) -> Iterator[Connection]:
        with self.containerd.connect(path, timeout=timeout) as peer:
            peer.pid = CRIO if path.endswith("crio.sock") else peer.pid
            yield peer


def works_on(node: FakeNode, sockets: Sockets, environ: dict[str, str]) -> tuple[str, str, str, str]:
    settings = settings_of({}, environ)
    daemon = selection.select(node.host, sockets, request_of(node.host, settings, layout_of(settings)))
    return daemon.kind, daemon.socket, daemon.config, daemon.drop_in


@pytest.mark.parametrize("runtime", ["crio", "docker"])
def test_the_edited_manifest_is_one_that_kubernetes_accepts(runtime: str) -> None:
    daemonset = edited(runtime)
    kubernetes_validate.validate(daemonset, "1.37", strict=True)
    assert not {name for name in environment(daemonset) if name.startswith("RUNTIME_")}
    pod = daemonset["spec"]["template"]["spec"]
    assert "containerd" not in str(pod), "nothing of the other runtime is left"
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }


def test_crio_is_found_with_its_own_files(node: FakeNode) -> None:
    found = works_on(node, WithCrio(node), environment(edited("crio")))
    assert found == (
        "crio",
        "/run/crio/crio.sock",
        "/etc/crio/crio.conf",
        "/etc/crio/crio.conf.d/99-nvidia.toml",
    )


def test_docker_is_found_with_its_own_file(node: FakeNode) -> None:
    sockets = with_docker(node, FakeContainerd(node=node))
    assert works_on(node, sockets, environment(edited("docker"))) == (
        "docker",
        "/run/docker.sock",
        "/etc/docker/daemon.json",
        "",
    )


def test_the_manifest_as_it_is_means_containerd(node: FakeNode) -> None:
    """The paths are the pod's there; its mounts say which of the node's they are."""
    mounts = (("/runtime/config-dir", "/etc/containerd"), ("/runtime/sock-dir", "/run/containerd"))
    inside = "".join(
        f"{2 + number} 1 8:1 {path} {mount} rw - ext4 /dev/sda1 rw\n"
        for number, (mount, path) in enumerate(mounts)
    )
    table = b"1 0 0:50 / / rw - overlay overlay rw\n" + inside.encode()
    node.host.files.write_atomic("/proc/self/mountinfo", table)
    found = works_on(node, FakeContainerd(node=node), environment(toolkitpod.daemonset()))
    assert found == ("containerd", SOCKET, CONFIG, DROP_IN)
