"""Which module set is loaded: place, type, signature, the network driver that it was compiled against."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driverforge_core.errors import DriverforgeError, NotPermitted, Unsupported
from driverforge_driver.driver.choice import choose_modules, type_order
from driverforge_driver.state.facts import DriverFacts, WantedDriver
from driverforge_driver.state.module_sets import ModuleSource, SourcePlace
from driverforge_driver.state.network import Network, NetworkBuildFiles
from driverforge_driver.state.variables import WantedModuleType
from driverforge_host.catalogue import GPUS
from support.samples.driverfacts import DRIVER, GPU, RELEASE, facts, image, source, wanted

ENFORCED = "module.sig_enforce is on"
OPEN = wanted(module_type=WantedModuleType.OPEN)
MOFED = Network(build_files=NetworkBuildFiles(folder="/usr/src/ofa_kernel", identity="sha256:1"))
# what a GPU rules out
DRIVEN_BY_ONE_TYPE = [gpu for gpu in GPUS if len(gpu.module_types) == 1]


def refusal(found: DriverFacts, want: WantedDriver) -> DriverforgeError:
    with pytest.raises(DriverforgeError) as caught:
        choose_modules(found, want)
    assert caught.value.resolution
    return caught.value


def against(made: ModuleSource, network: str) -> ModuleSource:
    """The same set, compiled against a network driver."""
    return replace(made, modules=replace(made.modules, network=network))


@pytest.mark.parametrize(
    ("place", "has"), [(SourcePlace.IMAGE, "the image has"), (SourcePlace.CACHE, "the node's cache has")]
)
def test_the_reason_names_where_the_set_lies(place: SourcePlace, has: str) -> None:
    made = source(place=place)
    choice = choose_modules(facts(sources=(made,)), OPEN)
    assert choice.source == made
    assert choice.reason == f"{has} open modules {DRIVER} for {RELEASE}"


def test_the_first_set_that_fits_is_taken_and_it_alone_has_to_be_whole() -> None:
    whole, lacking = source(), source(place=SourcePlace.CACHE, names=("nvidia.ko",))
    choice = choose_modules(facts(sources=(whole, lacking)), OPEN)
    assert choice.source == whole
    assert choice.reason.startswith("the image has")
    error = refusal(facts(sources=(lacking, whole)), OPEN)
    assert error.brief == f"the module set of driver {DRIVER} lacks nvidia_uvm, nvidia_modeset"


def test_an_image_without_the_type_that_a_gpu_needs_is_refused_with_the_types_that_it_has() -> None:
    """The builder leaves out the type that does not compile for a kernel."""
    hopper = next(gpu for gpu in GPUS if gpu.name == "grace-hopper")
    found = facts(
        sources=(source("proprietary"),), gpus=(replace(GPU, device=hopper.devices[0][0]),), image=image()
    )
    error = refusal(found, wanted())
    assert error.brief == (
        f"this image has no open modules of driver {DRIVER} for the running kernel {RELEASE}"
    )
    assert error.details[0] == f"modules in the image: for {RELEASE}; for {RELEASE} proprietary ones"
    assert error.resolution.startswith(f"use an image with open modules for {RELEASE}, ")
    assert choose_modules(replace(found, gpus=(GPU,)), wanted()).module_type == "proprietary"


def test_a_set_of_another_type_is_none() -> None:
    proprietary = source("proprietary")
    assert isinstance(refusal(facts(sources=(proprietary,)), OPEN), Unsupported)
    assert choose_modules(facts(sources=(proprietary, source())), OPEN).source == source()


def test_sources_of_the_wanted_type_are_compiled_where_no_set_is_there() -> None:
    found = facts(
        sources=(), image=image(sources=["open"]), unusable_sets=("/cache/open: nvidia.ko is damaged",)
    )
    choice = choose_modules(found, OPEN)
    assert (choice.module_type, choice.source) == ("open", None)
    assert choice.reason == (
        f"neither the image nor the node's cache has open modules {DRIVER} for {RELEASE} "
        "(not taken: /cache/open: nvidia.ko is damaged); the image has their source: compiling here"
    )


def test_auto_compiles_the_type_that_the_image_has_the_source_of() -> None:
    choice = choose_modules(facts(sources=(), image=image(sources=["open"])), wanted())
    assert choice.module_type == "open", "535 would take proprietary modules first"


@pytest.mark.parametrize(
    ("found", "want", "sources"),
    [
        (facts(sources=(), image=image(sources=["proprietary"])), OPEN, "proprietary"),
        (
            facts(sources=(), image=image(sources=["open", "proprietary"])),
            replace(OPEN, may_build=False),
            "open, proprietary (compiling was not asked for)",
        ),
        (facts(sources=(), image=image()), OPEN, "none"),
        (facts(sources=(), image=None), OPEN, "none"),
        # nothing to compile from: that the kernel wants signatures is another matter
        (facts(sources=(), image=image(), enforced=ENFORCED), OPEN, "none"),
    ],
)
def test_without_sets_and_sources_it_is_refused_with_what_there_is(
    found: DriverFacts, want: WantedDriver, sources: str
) -> None:
    error = refusal(found, want)
    assert isinstance(error, Unsupported)
    assert error.brief == (
        f"this image has no open modules of driver {DRIVER} for the running kernel {RELEASE}"
    )
    assert error.details == (
        f"modules in the image: for {RELEASE}",
        "modules in the node's cache: none that fit",
        f"sources in the image: {sources}",
    )


def test_a_refusal_names_kernels_and_what_the_cache_has_in_vain() -> None:
    found = facts(sources=(), image_kernels=(), unusable_sets=("/a: damaged", "/b: incomplete"))
    assert refusal(found, OPEN).details[:2] == (
        "modules in the image: for no kernel",
        "modules in the node's cache: /a: damaged; /b: incomplete",
    )
    assert refusal(replace(found, image_kernels=("6.1", "6.12")), OPEN).details[0].endswith("for 6.1, 6.12")


def test_a_kernel_that_takes_signed_modules_only_gets_a_signed_set_or_nothing() -> None:
    signed = source(signer="Example key")
    found = facts(sources=(source(), signed), enforced=ENFORCED)
    assert choose_modules(found, OPEN).source == signed
    assert choose_modules(replace(found, enforced=""), OPEN).source == source()
    assert choose_modules(replace(found, sources=(signed,), enforced=""), OPEN).source == signed
    assert isinstance(refusal(replace(found, sources=(source(),)), OPEN), Unsupported)


def test_nothing_is_compiled_for_a_kernel_that_takes_signed_modules_only() -> None:
    error = refusal(facts(sources=(), image=image(sources=["open"]), enforced=ENFORCED), OPEN)
    assert isinstance(error, NotPermitted)
    assert "modules that are compiled on the node are unsigned" in error.brief
    assert error.details == (
        ENFORCED,
        f"neither the image nor the node's cache has open modules {DRIVER} for {RELEASE}",
    )


def test_a_set_compiled_against_this_network_driver_comes_first() -> None:
    plain, fits = source(), against(source(place=SourcePlace.CACHE), "sha256:1")
    can_build = image(sources=["open"])
    assert choose_modules(facts(sources=(plain, fits), network=MOFED, image=can_build), OPEN).source == fits
    assert choose_modules(facts(sources=(plain, fits), network=MOFED), OPEN).source == fits
    # without a network driver any set fits
    assert choose_modules(facts(sources=(plain, fits), image=can_build), OPEN).source == plain
    assert choose_modules(facts(sources=(fits,), image=can_build), OPEN).source == fits


def test_a_set_compiled_against_another_network_driver_is_compiled_again_where_that_can_be() -> None:
    other = against(source(), "sha256:2")
    choice = choose_modules(facts(sources=(other,), network=MOFED, image=image(sources=["open"])), OPEN)
    assert choice.source is None
    assert f"for {RELEASE} compiled against this node's network driver; " in choice.reason
    assert choose_modules(facts(sources=(other,), network=MOFED), OPEN).source == other
    signed = replace(other, signer="Example key")
    enforced = facts(sources=(signed,), network=MOFED, image=image(sources=["open"]), enforced=ENFORCED)
    assert choose_modules(enforced, OPEN).source == signed


@pytest.mark.parametrize(
    ("driver", "first"),
    [("559.99", "proprietary"), ("560.28.03", "open"), ("535.261.03", "proprietary"), ("580.65.06", "open")],
)
def test_auto_prefers_the_open_modules_from_560_on(driver: str, first: str) -> None:
    order = type_order(wanted(driver=driver))
    assert order[0] == first
    assert sorted(order) == ["open", "proprietary"]


@pytest.mark.parametrize("kind", [WantedModuleType.OPEN, WantedModuleType.PROPRIETARY])
def test_a_type_that_was_asked_for_is_the_only_one_whatever_the_gpus(kind: WantedModuleType) -> None:
    every = [replace(GPU, device=gpu.devices[0][0]) for gpu in DRIVEN_BY_ONE_TYPE]
    assert type_order(wanted(module_type=kind), every) == (kind.value,)


@pytest.mark.parametrize(
    ("device", "types"),
    [(device, gpu.module_types) for gpu in DRIVEN_BY_ONE_TYPE for ends in gpu.devices for device in ends],
)
def test_a_gpu_at_either_end_of_its_range_rules_out_what_cannot_drive_it(
    device: int, types: tuple[str, ...]
) -> None:
    for driver in ("535.261.03", "580.65.06"):
        assert type_order(wanted(driver=driver), [GPU, replace(GPU, device=device)]) == types


def test_gpus_that_no_one_type_drives_leave_both_in_order() -> None:
    """The driver takes those that it can; the rest is warned about."""
    kinds = {gpu.module_types: gpu.devices[0][0] for gpu in DRIVEN_BY_ONE_TYPE}
    assert set(kinds) == {("open",), ("proprietary",)}
    gpus = [replace(GPU, device=device) for device in kinds.values()]
    assert type_order(wanted(driver="580.65.06"), gpus) == ("open", "proprietary")
