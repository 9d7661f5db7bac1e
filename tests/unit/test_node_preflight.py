"""What is refused before anything is touched, each with one that is not beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from driverforge_core.errors import DriverforgeError, NotPermitted, StorageFailed, Unavailable, Unsupported
from driverforge_driver.driver.preflight import (
    gpu_problem,
    owner_resolution,
    preflight,
    signature_problem,
    space_problem,
)
from driverforge_driver.state.facts import DriverFacts
from driverforge_driver.state.variables import WantedModuleType
from support.samples.driverfacts import DRIVER, GPU, RELEASE, facts, source, wanted

ENFORCED = "module.sig_enforce is on"
MIB = 1 << 20


def bound(*drivers: str) -> DriverFacts:
    """A node with a GPU for each of these drivers; '' is a free one."""
    return facts(
        gpus=tuple(
            replace(GPU, address=f"0000:{number:02x}:00.0", driver=driver)
            for number, driver in enumerate(drivers)
        )
    )


@pytest.mark.parametrize("change", [{}, {"kernel": RELEASE}, {"driver": DRIVER}])
def test_a_node_with_all_that_it_takes_passes(change: dict[str, Any]) -> None:
    assert preflight(facts(), wanted(**change)) is None


@pytest.mark.parametrize(
    ("change", "want", "error", "says"),
    [
        ({"user": 1}, {}, NotPermitted, "loading a driver needs root"),
        ({"image": None}, {}, Unsupported, "not a driver image"),
        ({}, {"driver": "550.163.01"}, Unsupported, "the image holds driver 535.261.03"),
        ({}, {"kernel": "6.12.0-1"}, Unsupported, "--kernel names 6.12.0-1"),
        ({"modular": False}, {}, Unsupported, "loads no modules"),
        ({"gpus": ()}, {}, Unavailable, "no NVIDIA GPU on this node"),
    ],
)
def test_what_the_node_or_the_image_lacks_is_named(
    change: dict[str, Any], want: dict[str, Any], error: type[DriverforgeError], says: str
) -> None:
    found = preflight(facts(**change), wanted(**want))
    assert type(found) is error
    assert says in found.brief
    assert found.resolution


@pytest.mark.parametrize("drivers", [("",), ("nvidia",), ("vfio-pci", ""), ("nouveau", "nvidia")])
def test_one_gpu_that_is_free_or_ours_is_enough(drivers: tuple[str, ...]) -> None:
    assert gpu_problem(bound(*drivers)) is None


def test_gpus_of_other_drivers_are_told_with_their_owners() -> None:
    error = gpu_problem(bound("vfio-pci", "nouveau", "vfio-pci"))
    assert error is not None
    assert error.brief == "every NVIDIA GPU on this node belongs to another driver: nouveau, vfio-pci"
    assert error.details == (
        "0000:00:00.0 [10de:20b0] is bound to vfio-pci",
        "0000:01:00.0 [10de:20b0] is bound to nouveau",
        "0000:02:00.0 [10de:20b0] is bound to vfio-pci",
    )


@pytest.mark.parametrize(
    ("owners", "step"),
    [
        (["nouveau", "vfio-pci"], "keep nouveau from loading"),
        (["pci-stub", "vfio-pci"], "passes its GPUs to virtual machines"),
        # one that is free is enough
        (["other", "pci-stub"], "unbind the GPU: echo ADDRESS > /sys/bus/pci/drivers/other/unbind"),
    ],
)
def test_the_way_to_free_a_gpu_depends_on_its_owner(owners: list[str], step: str) -> None:
    assert step in owner_resolution(owners)


@pytest.mark.parametrize(
    ("enforced", "sources"),
    [
        ("", (source(),)),
        ("", (source(), source(signer="Example key"))),
        (ENFORCED, (source(), source(signer="Example key"))),
        # none of the wanted type: that is another error
        (ENFORCED, (source("proprietary"),)),
        (ENFORCED, ()),
    ],
)
def test_modules_that_the_kernel_may_take_are_no_problem(enforced: str, sources: tuple[Any, ...]) -> None:
    want = wanted(module_type=WantedModuleType.OPEN)
    assert signature_problem(facts(enforced=enforced, sources=sources), want) is None


def test_unsigned_modules_are_named_where_signed_ones_are_enforced() -> None:
    """A signed set of a type that nobody wants does not help."""
    found = facts(enforced=ENFORCED, sources=(source(), source("proprietary", signer="Example key")))
    error = signature_problem(found, wanted(module_type=WantedModuleType.OPEN))
    assert error is not None
    assert error.brief == "this kernel takes signed modules only, and the modules for it are unsigned"
    assert error.details == (ENFORCED, f"{source().path}/nvidia.ko has no signature")
    assert signature_problem(found, wanted()) is None


def test_modules_whose_key_the_kernel_does_not_have_are_refused_before_it_sees_them() -> None:
    ours = source(signer="Site modules", signer_key="0a1b")
    error = signature_problem(
        facts(enforced=ENFORCED, sources=(ours,), kernel_keys=frozenset({"ff"})), wanted()
    )
    assert error is not None
    assert error.brief.endswith("and it does not have the key of the modules for it")
    assert error.details == (ENFORCED, f"{ours.path} is signed by Site modules 0a1b")
    assert "mokutil" in error.resolution


@pytest.mark.parametrize(
    ("enforced", "keys", "key"),
    [
        (ENFORCED, {"0a1b", "ff"}, "0a1b"),
        (ENFORCED, set(), "0a1b"),  # nothing can be seen
        (ENFORCED, {"ff"}, ""),  # a distribution's signature: its set does not say
        ("", {"ff"}, "0a1b"),
    ],
)
def test_a_key_that_the_kernel_may_have_is_left_to_the_kernel(
    enforced: str, keys: set[str], key: str
) -> None:
    sources = (source(signer="Site modules", signer_key=key),)
    found = facts(enforced=enforced, sources=sources, kernel_keys=frozenset(keys))
    assert signature_problem(found, wanted()) is None


def test_a_module_set_needs_its_size_and_16_mib() -> None:
    made = source(size=20 * MIB)
    assert space_problem(facts(free=36 * MIB), made) is None
    error = space_problem(facts(free=36 * MIB - 1), made)
    assert isinstance(error, StorageFailed)
    assert error.details == ("35 MiB free under /lib/modules, 36 MiB needed",)
