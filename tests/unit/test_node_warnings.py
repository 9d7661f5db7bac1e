"""What a ready node lacks: each warning has a node that gets it, and its neighbours that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from driverforge_driver.driver.notices import left_out, warnings
from driverforge_driver.state import paths
from driverforge_driver.state.facts import DriverFacts, Goal
from driverforge_driver.state.network import Network
from support.samples.driverfacts import DRIVER, GPU, image, loaded, module, ready, wanted

PEERMEM = wanted(peermem=True)
AWAY = [Goal.ABSENT, Goal.STOPPED]
NETWORK = Network(devices=("0000:5e:00.0",), ready=True)


def gpus(**drivers: str) -> dict[str, Any]:
    return {"gpus": tuple(replace(GPU, address=name, driver=driver) for name, driver in drivers.items())}


def lacking(**changes: Any) -> DriverFacts:
    """A node to which every warning applies, but for what is changed."""
    everything: dict[str, Any] = {
        **gpus(a="nvidia", b=""),
        "driven": ("a",),
        "firmware_path": "/srv/firmware",
        "image": replace(image(), firmware="/opt/firmware"),
        "nvswitches": ("0000:00:00.0", "0000:01:00.0"),
        "network": NETWORK,
    }
    return ready(**{**everything, **changes})


def test_each_thing_that_a_node_lacks_is_a_line_with_the_next_step() -> None:
    found = warnings(lacking(), PEERMEM, nvlink5=True)
    assert [line.partition(";")[0] for line in found] == [
        "the driver drives 1 of 2 GPUs, not b",
        (
            "the kernel searches for firmware in /srv/firmware, which somebody else set, not in "
            "/run/nvidia/driver/lib/firmware: GPUs that need GSP firmware do not start"
        ),
        (
            "this node has 2 NVSwitches (0000:00:00.0, 0000:01:00.0) and this image runs no fabric manager: "
            "without one, CUDA programs end with error 802 (system not yet initialized)"
        ),
        (
            "this node has NVLink 5 switches and this image runs no subnet manager for them (nvlsm): "
            "without one, GPUs do not reach each other by NVLink"
        ),
        f"nvidia-peermem is not loaded: the module set of driver {DRIVER} has none",
    ]
    assert all("; next: " in line for line in found)


@pytest.mark.parametrize("goal", AWAY)
def test_a_node_whose_driver_goes_lacks_nothing(goal: Goal) -> None:
    assert warnings(lacking(), wanted(goal=goal, peermem=True), nvlink5=True) == ()


def test_a_load_for_nobody_is_warned_about_like_a_served_driver() -> None:
    assert len(warnings(lacking(), wanted(goal=Goal.LOAD, peermem=True), nvlink5=True)) == 5


def test_a_whole_node_lacks_nothing() -> None:
    assert warnings(ready(), wanted(), nvlink5=False) == ()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (gpus(a="", b="", c="nvidia"), "drives 1 of 3 GPUs, not b, c;"),
        ({"driven": ("a", "z")}, "drives 2 of 3 GPUs, not b;"),
        (gpus(a="nvidia", b="vfio-pci"), ""),
        (gpus(a="nvidia"), ""),
        # a driver before it has taken any, or one that does not tell
        ({"driven": ()}, ""),
    ],
)
def test_gpus_that_are_ours_to_drive_and_are_not_driven(changes: dict[str, Any], says: str) -> None:
    found = [line for line in warnings(lacking(**changes), wanted(), nvlink5=False) if "drives" in line]
    assert [says in line for line in found] == ([True] if says else [])


@pytest.mark.parametrize("path", [None, "", paths.FIRMWARE_SEARCH_VALUE])
def test_a_firmware_path_that_is_ours_or_nobodys_is_not_warned_about(path: str | None) -> None:
    assert not [
        line for line in warnings(lacking(firmware_path=path), wanted(), nvlink5=False) if "search" in line
    ]


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"image": None}, {}),
        ({"image": image()}, {}),
        ({}, {"parameters": {"nvidia": ("NVreg_EnableGpuFirmware=0",)}}),
    ],
)
def test_a_driver_that_takes_no_firmware_does_not_mind_the_path(
    changes: dict[str, Any], want: dict[str, Any]
) -> None:
    found = warnings(lacking(**changes), wanted(**want), nvlink5=False)
    assert not [line for line in found if "firmware" in line]


def test_the_fabric_manager_has_to_be_of_the_loaded_drivers_version() -> None:
    def next_step(found: DriverFacts) -> str:
        (line,) = [line for line in warnings(found, wanted(), nvlink5=False) if "NVSwitches" in line]
        return line.partition("; next: ")[2]

    old, part = loaded("535.161.08"), {"nvidia_uvm": module("nvidia_uvm")}
    assert next_step(lacking(loaded=old)).startswith("run nvidia-fabricmanager 535.161.08 on the node")
    assert next_step(lacking(loaded=part)).startswith("run nvidia-fabricmanager the driver's version")


@pytest.mark.parametrize(
    ("changes", "asked", "says"),
    [
        ({}, True, "has none; next: use an image that was built with it"),
        ({"network": replace(NETWORK, ready=False)}, True, "no InfiniBand yet"),
        ({}, False, ""),
        ({"network": Network()}, True, ""),
        ({"network": Network(ready=True)}, True, ""),
        ({"loaded": {**loaded(), "nvidia_peermem": module("nvidia_peermem")}}, True, ""),
    ],
)
def test_peermem_that_is_wanted_and_missing_is_told_with_the_cause(
    changes: dict[str, Any], asked: bool, says: str
) -> None:
    found = warnings(lacking(**changes), wanted(peermem=asked), nvlink5=False)
    assert [says in line for line in found if "peermem" in line] == ([True] if says else [])


@pytest.mark.parametrize(
    ("goal", "asked", "network", "told"),
    [
        (Goal.SERVE, True, Network(), True),
        (Goal.LOAD, True, Network(ready=True), True),
        (Goal.SERVE, True, NETWORK, False),
        (Goal.SERVE, False, Network(), False),
        (Goal.ABSENT, True, Network(), False),
        (Goal.STOPPED, True, Network(), False),
    ],
)
def test_peermem_is_left_out_where_no_network_device_can_use_it(
    goal: Goal, asked: bool, network: Network, told: bool
) -> None:
    found = left_out(ready(network=network), wanted(goal=goal, peermem=asked))
    assert found == (
        "nvidia-peermem is left out: no network device of PCI vendor 15b3 on this node" if told else ""
    )
