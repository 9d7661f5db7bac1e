"""A node that is Ready and lacks something: a warning in the log and in the status file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driverctl import cli
from driverforge_driver.driver.converge import converge
from driverforge_driver.state import paths
from driverforge_driver.state.facts import Goal
from driverforge_driver.state.wanted_driver import read_wanted
from support.fakes.fakehost import FakeNode, fake_node
from support.fakes.fakeimage import DRIVER


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return fake_node(tmp_path)


def add_bridge(node: FakeNode, address: str, device: str) -> None:
    """A function of NVIDIA's of class 0680, as NVSwitches have it, and the network ports of old chipsets."""
    base = f"/sys/bus/pci/devices/{address}"
    node.files.make_dirs(base)
    for name, text in (("vendor", "0x10de\n"), ("device", f"{device}\n"), ("class", "0x068000\n")):
        node.files.write_atomic(f"{base}/{name}", text.encode())


def test_a_node_with_nvswitches_is_ready_and_says_that_it_needs_a_fabric_manager(node: FakeNode) -> None:
    for number, device in enumerate(("0x22a3", "0x1af1")):
        add_bridge(node, f"0000:{number:02x}:00.0", device)
    written: list[list[str]] = []

    def look(_: float) -> None:
        status = json.loads(node.text(paths.STATUS) or "{}")
        if status.get("phase") == "ready":
            written.append(status["warnings"])
            assert node.text(paths.DAEMONS_STATUS) == "Ready\n"

    node.clock.stop_at = node.clock.time + 20
    node.clock.on_wait = look
    assert cli.run(["init"], lambda: node.host) == 0
    ((warning,),) = written[:1]
    assert warning.startswith(
        "this node has 2 NVSwitches (0000:00:00.0, 0000:01:00.0) and this image runs no fabric manager"
    )
    assert f"next: run nvidia-fabricmanager {DRIVER}" in warning


def test_other_functions_of_that_class_are_no_nvswitches(node: FakeNode) -> None:
    add_bridge(node, "0000:00:08.0", "0x0373")  # MCP55 Ethernet
    assert converge(node.host, read_wanted(node.host, Goal.SERVE)).warnings == ()


def test_going_away_warns_of_nothing(node: FakeNode) -> None:
    add_bridge(node, "0000:00:00.0", "0x22a3")
    assert len(converge(node.host, read_wanted(node.host, Goal.LOAD)).warnings) == 1
    assert converge(node.host, read_wanted(node.host, Goal.ABSENT)).warnings == ()


def add_driven(node: FakeNode, *addresses: str) -> None:
    for address in addresses:
        node.files.make_dirs(f"/proc/driver/nvidia/gpus/{address}")


def serve_warnings(node: FakeNode) -> tuple[str, ...]:
    return converge(node.host, read_wanted(node.host, Goal.SERVE)).warnings


def test_a_gpu_that_the_driver_did_not_take_is_named(node: FakeNode) -> None:
    node.add_gpu("0000:5e:00.0")
    node.add_gpu("0000:86:00.0", driver="vfio-pci")
    add_driven(node, "0000:3b:00.0")
    (warning,) = serve_warnings(node)
    assert warning.startswith("the driver drives 1 of 2 GPUs, not 0000:5e:00.0; next: ")
    add_driven(node, "0000:5e:00.0")
    assert serve_warnings(node) == ()


def test_a_firmware_path_of_somebody_else_is_named_where_firmware_matters(node: FakeNode) -> None:
    node.files.write_atomic(paths.FIRMWARE_SEARCH, b"/srv/firmware\n")
    (warning,) = serve_warnings(node)
    assert warning.startswith("the kernel searches for firmware in /srv/firmware, which somebody else set")
    assert f"next: copy nvidia/{DRIVER} there, or empty {paths.FIRMWARE_SEARCH}" in warning
    node.files.make_dirs("/drivers")
    node.files.write_atomic("/drivers/nvidia.conf", b"NVreg_EnableGpuFirmware=0\n")
    assert serve_warnings(node) == ()


def test_nvlink_5_without_a_subnet_manager_is_named(node: FakeNode) -> None:
    for name, product in (("mlx5_0", b"\x82ConnectX"), ("mlx5_1", b"\x82B200 \0SW_MNG\0")):
        node.files.make_dirs(f"/sys/class/infiniband/{name}/device")
        node.files.write_atomic(f"/sys/class/infiniband/{name}/device/vpd", product)
    (warning,) = serve_warnings(node)
    assert "NVLink 5 switches" in warning
    assert "nvlsm" in warning
    node.files.remove("/sys/class/infiniband/mlx5_1/device/vpd")
    assert serve_warnings(node) == ()
