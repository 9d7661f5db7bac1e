"""Device files of the driver and their links in /dev/char are made or corrected.

Where something else is in the way, they are refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from driverctl.cli import run
from driverforge_core.errors import StorageFailed, Unavailable
from driverforge_host.gpu.device_files import capability_files, control_files, device_majors
from support.fakes.driverroot import DEVICES, ROOT, add_device, bare_node
from support.fakes.fakehost import NODE, FakeNode
from support.upstream import cdicases
from support.upstream.cdicases import Case


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = bare_node(tmp_path)
    made.files.write_atomic("/proc/devices", DEVICES.encode())
    made.host.node.make_dirs("/dev/char")
    return made


def devices(node: FakeNode, *words: str) -> int:
    return run(["devices", *words], lambda: node.host)


def test_control_nodes_are_made_below_the_dev_root(
    node: FakeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert devices(node, "nodes", "--dev-root", ROOT) == 0
    wanted = {
        "nvidiactl": (195, 255),
        "nvidia-modeset": (195, 254),
        "nvidia-uvm": (511, 0),
        "nvidia-uvm-tools": (511, 1),
    }
    assert {name: node.host.node.device_number(f"{ROOT}/dev/{name}") for name in wanted} == wanted
    assert "make /dev/nvidiactl (195:255)" in capsys.readouterr().out
    assert devices(node, "nodes", "--dev-root", ROOT) == 0
    assert capsys.readouterr().out == "nothing to do\n"


def test_a_node_with_the_numbers_of_another_time_is_corrected(
    node: FakeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    """Upstream leaves it: containers then open some other driver's device."""
    add_device(node, f"{NODE}{ROOT}/dev/nvidia-uvm", 236, 0)
    node.environ["DRIVER_ROOT"] = ROOT
    devices(node, "nodes", "--plan")
    assert "correct /dev/nvidia-uvm (511:0), which is 236:0 now" in capsys.readouterr().out
    assert node.host.node.device_number(f"{ROOT}/dev/nvidia-uvm") == (236, 0)
    devices(node, "nodes")
    assert node.host.node.device_number(f"{ROOT}/dev/nvidia-uvm") == (511, 0)


def test_something_else_in_the_place_of_a_node_is_refused_and_nothing_is_made(node: FakeNode) -> None:
    node.host.node.make_dirs(f"{ROOT}/dev/nvidiactl")
    node.host.node.symlink("/nowhere", f"{ROOT}/dev/nvidia-uvm")
    with pytest.raises(StorageFailed) as caught:
        devices(node, "nodes", "--dev-root", ROOT)
    assert caught.value.details == (f"{NODE}{ROOT}/dev/nvidiactl", f"{NODE}{ROOT}/dev/nvidia-uvm")
    assert not node.host.node.exists(f"{ROOT}/dev/nvidia-modeset")


def test_gpu_nodes_on_request(node: FakeNode) -> None:
    node.files.make_dirs("/proc/driver/nvidia/gpus/0000:17:00.0")
    node.files.write_atomic("/proc/driver/nvidia/gpus/0000:17:00.0/information", b"Device Minor: \t 4\n")
    devices(node, "nodes", "--dev-root", ROOT, "--gpus")
    assert node.host.node.device_number(f"{ROOT}/dev/nvidia4") == (195, 4)


def test_without_a_driver_it_says_what_to_do(node: FakeNode) -> None:
    node.files.write_atomic("/proc/devices", b"Character devices:\n  1 mem\n")
    with pytest.raises(Unavailable, match="no NVIDIA devices found"):
        devices(node, "nodes", "--dev-root", ROOT)


def test_modules_are_loaded_on_request(node: FakeNode) -> None:
    with pytest.raises(Exception, match="could not insert the module nvidia"):
        devices(node, "nodes", "--load-kernel-modules", "--driver-root", ROOT)
    assert devices(node, "nodes", "--load-kernel-modules", "--plan", "--driver-root", ROOT) == 0


def test_links_lead_to_the_nodes_of_the_driver_root(
    node: FakeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    """Upstream's --driver-root does not change where it looks."""
    add_device(node, f"{NODE}{ROOT}/dev/nvidia0", 195, 0)
    add_device(node, f"{NODE}{ROOT}/dev/nvidia-caps/nvidia-cap1", 510, 1)
    add_device(node, f"{NODE}/dev/nvidia7", 195, 7)
    devices(node, "links", "--driver-root", ROOT)
    assert node.host.node.resolve("/dev/char/195:0") == f"{ROOT}/dev/nvidia0"
    assert node.host.node.resolve("/dev/char/510:1") == f"{ROOT}/dev/nvidia-caps/nvidia-cap1"
    assert node.host.node.list_dir("/dev/char") == ("195:0", "510:1")
    capsys.readouterr()
    devices(node, "links", "--driver-root", ROOT)
    assert capsys.readouterr().out == "nothing to do\n"


def test_a_link_to_another_device_is_corrected_and_one_of_another_form_stays(
    node: FakeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    add_device(node, f"{NODE}/dev/nvidia0", 195, 0)
    add_device(node, f"{NODE}/dev/nvidia1", 195, 1)
    node.host.node.symlink("../nvidia0", "/dev/char/195:0")
    node.host.node.symlink("../nvidia0", "/dev/char/195:1")
    devices(node, "links")
    assert (
        capsys.readouterr().out
        == "correct /dev/char/195:1 -> /dev/nvidia1, which leads to /dev/nvidia0 now\n"
    )
    assert node.host.node.resolve("/dev/char/195:1") == "/dev/nvidia1"


def test_a_file_with_the_name_of_a_link_is_refused(node: FakeNode) -> None:
    add_device(node, f"{NODE}/dev/nvidia0", 195, 0)
    node.host.node.write_atomic("/dev/char/195:0", b"")
    with pytest.raises(StorageFailed, match="not a link"):
        devices(node, "links")


def test_links_to_nodes_that_are_to_come(node: FakeNode) -> None:
    node.files.make_dirs("/proc/driver/nvidia/gpus/0000:17:00.0")
    node.files.write_atomic("/proc/driver/nvidia/gpus/0000:17:00.0/information", b"Device Minor: \t 0\n")
    node.files.make_dirs("/proc/driver/nvidia-caps")
    node.files.write_atomic("/proc/driver/nvidia-caps/mig-minors", b"config 1\nmonitor 2\n")
    devices(node, "links", "--create-all", "--dev-char-path", "/dev/char")
    assert set(node.host.node.list_dir("/dev/char")) == {
        "195:0",
        "195:254",
        "195:255",
        "511:0",
        "511:1",
        "510:1",
        "510:2",
    }
    assert node.host.node.resolve("/dev/char/510:2") == "/dev/nvidia-caps/nvidia-cap2"


@pytest.mark.parametrize("case", cdicases.load("system", "CreateControlDevices"), ids=cdicases.title)
def test_control_nodes_are_upstreams(case: Case) -> None:
    majors = case["input"]["devices"]
    if case["expected"]["expectedError"]:
        with pytest.raises(Unavailable):
            control_files({})
        return
    wanted = [
        (call["S"].removeprefix(case["input"]["root"]), call["N1"], call["N2"])
        for call in case["expected"]["expectedCalls"]
    ]
    assert [(found.path, found.major, found.minor) for found in control_files(majors)] == wanted


@pytest.mark.parametrize(
    "case", cdicases.load("system", "ProcessDeviceFile", "ProcessDeviceFileLine"), ids=cdicases.title
)
def test_majors_are_read_as_upstream_does(case: Case) -> None:
    given = case["input"]
    if case["operation"] == "ProcessDeviceFile":
        assert device_majors("\n".join(given["lines"] or ())) == (case["expected"]["expected"] or {})
    else:
        assert device_majors(given["line"]) == ({} if given["err"] else {given["name"]: given["major"]})


def test_a_driver_without_mig_has_no_capability_nodes() -> None:
    assert capability_files({"nvidia": 195}, [1, 2]) == ()
