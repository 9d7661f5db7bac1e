"""`driverctl cdi`, `devices` and `doctor` in the pod of docs/kubernetes/toolkit.yaml are about the node."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from driverctl import cli
from driverforge_toolkit.app.management_spec import roots_of, write_management_spec
from driverforge_toolkit.cdi import specfiles, stale
from driverforge_toolkit.doctor import gather
from driverforge_toolkit.doctor.rules import examine
from driverforge_toolkit.toolkit.releases import Layout
from driverforge_toolkit.toolkit.settings import settings_of
from support.cluster import toolkitpod
from support.fakes.driverroot import DEVICES, ROOT, add_device, bare_node, write_tree
from support.fakes.fakecontainerd import CONFIG, FakeContainerd
from support.fakes.fakecontainerd import ROOT as CONTAINERD
from support.fakes.fakehost import NODE, FakeNode

DRIVER = "/run/nvidia/driver"
MANAGEMENT = "/var/run/cdi/management.nvidia.com-gpu.yaml"
LIBRARY = "usr/lib/x86_64-linux-gnu/libcuda.so"
HOOK = "/usr/local/nvidia/toolkit/nvidia-cdi-hook"


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    """A node with a driver from a container, and this process in the documented pod.

    The pod's /dev and /etc/cdi are its own.
    """
    made = bare_node(tmp_path)
    (container,) = toolkitpod.daemonset()["spec"]["template"]["spec"]["containers"]
    made.environ.update({entry["name"]: entry["value"] for entry in container["env"]})
    for mount, path in ((ROOT, DRIVER), ("/var/run/cdi", "/var/run/cdi")):
        made.host.node.make_dirs(path)
        made.places[mount] = Path(made.host.node.real(path))
    for path, text in ((HOOK, b"#!/bin/sh\n"), ("/proc/devices", DEVICES.encode())):
        made.host.node.make_dirs(path.rpartition("/")[0])
        made.host.node.write_atomic(path, text)
    made.files.write_atomic("/proc/devices", DEVICES.encode())
    made.files.make_dirs("/dev/char")
    install(made, "580.65.06")
    return made


def install(node: FakeNode, version: str) -> None:
    node.host.node.remove_tree(f"{DRIVER}/usr")
    write_tree(node, f"{LIBRARY}.{version} file")
    for name, major, minor in (("nvidia0", 195, 0), ("nvidiactl", 195, 255), ("nvidia-uvm", 511, 0)):
        add_device(node, f"{NODE}{DRIVER}/dev/{name}", major, minor)


def found(node: FakeNode, more: bytes = b"") -> dict[str, str]:
    """What the doctor says, and its cure; `more` goes into containerd's file."""
    daemon = FakeContainerd(node=node)
    node.host.node.write_atomic(CONFIG, CONTAINERD + more)
    facts = gather.of_node(node.host, daemon, install_dir="/usr/local/nvidia")
    return {one.rule.id: one.diagnosis.command for one in examine(facts)}


def follow(node: FakeNode, command: str) -> None:
    """Each of the commands, as somebody enters them in the pod."""
    for words in map(shlex.split, command.split("; ")):
        assert words[0] == "driverctl"
        assert cli.run(words[1:], lambda: node.host) == 0


@pytest.mark.parametrize("only_where_it_is_here", [False, True])
def test_a_spec_that_is_generated_in_the_pod_is_the_toolkits_own(
    node: FakeNode, *, only_where_it_is_here: bool
) -> None:
    settings = settings_of({}, node.environ)
    write_management_spec(node.host, settings, Layout(install_dir="/usr/local/nvidia"))
    written = node.text(MANAGEMENT)
    if only_where_it_is_here:
        del node.environ["NVIDIA_DRIVER_ROOT"]
    node.files.remove(MANAGEMENT)
    follow(node, f"driverctl cdi generate --mode management --output {MANAGEMENT}")
    assert node.text(MANAGEMENT) == written
    assert f"hostPath: {DRIVER}/{LIBRARY}.580.65.06" in written
    assert f"path: {HOOK}" in written


@pytest.mark.parametrize("path", ["/var/run/cdi/nvidia.yaml", "/etc/cdi/nvidia.yaml"])
def test_what_the_doctor_prints_cures_a_spec_of_an_earlier_driver(node: FakeNode, path: str) -> None:
    follow(node, f"driverctl cdi generate --mode static --output {path}")
    assert found(node) == {}
    install(node, "595.91.07")
    diagnoses = found(node)
    assert list(diagnoses) == ["spec-paths-gone"]
    follow(node, diagnoses["spec-paths-gone"])
    assert found(node) == {}
    spec = specfiles.read(node.host.node.read_text(path), path)
    paths = [mount.host_path for mount in spec.edits.mounts]
    assert paths == [f"{DRIVER}/{LIBRARY}.595.91.07", "/dev/null"]


def test_a_spec_that_names_another_root_is_written_anew_by_the_watch(node: FakeNode) -> None:
    follow(node, f"driverctl cdi generate --mode management --driver-root /other --output {MANAGEMENT}")
    facts = stale.observe(node.host, roots_of(settings_of({}, node.environ)))
    assert stale.needs_regeneration(node.files, MANAGEMENT, facts) == ("the driver root changed",)


def test_the_doctors_links_are_the_nodes(node: FakeNode) -> None:
    """The container's own /dev is as private as its /etc."""
    systemd = (
        b'[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]\nSystemdCgroup = true\n'
    )
    for minor in (0, 7):
        add_device(node, f"{NODE}/dev/nvidia{minor}", 195, minor)
    diagnoses = found(node, systemd)
    assert diagnoses == {
        "links-missing": f"driverctl devices links --dev-root /; driverctl devices links --dev-root {DRIVER}"
    }
    follow(node, diagnoses["links-missing"])
    assert found(node, systemd) == {}
    assert node.files.list_dir("/dev/char") == ()


def test_the_doctors_device_files_are_the_nodes(node: FakeNode) -> None:
    add_device(node, f"{NODE}{DRIVER}/dev/nvidia-uvm", 505, 0)
    follow(node, "driverctl cdi generate --mode static --output /etc/cdi/nvidia.yaml")
    diagnoses = found(node)
    assert list(diagnoses) == ["spec-with-wrong-major"]
    follow(node, diagnoses["spec-with-wrong-major"])
    assert node.host.node.device_number(f"{DRIVER}/dev/nvidia-uvm") == (511, 0)
    assert found(node) == {}
    assert not node.files.exists("/dev/nvidia-uvm")
