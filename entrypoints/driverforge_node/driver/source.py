"""Where the modules come from: the image, the node's cache, or a compilation here; and of which type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from driverforge_core.driver import DriverVersion
from driverforge_core.errors import Unsupported
from driverforge_core.pci import PciDevice
from driverforge_node.catalogue import GPUS
from driverforge_node.driver.facts import Facts, Source, Wanted
from driverforge_node.driver.preflight import signed_only

OPEN_BY_DEFAULT = 560  # NVIDIA's installer recommends the open modules from this branch on


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The module set to load; `source` is None where it has to be compiled first."""

    module_type: str
    source: Source | None
    reason: str


def choose(facts: Facts, wanted: Wanted) -> Choice:
    """The first source that fits. Raises Unsupported where there is none, with what the image has and what to do; NotPermitted where
    it would have to be compiled for a kernel that takes signed modules only."""
    order = type_order(wanted, facts.gpus)
    buildable = [kind for kind in order if wanted.may_build and facts.image and kind in facts.image.sources]
    for module_type in order:
        can_build = module_type in buildable and not facts.enforced
        of_type = [
            s
            for s in facts.sources
            if s.modules.module_type == module_type and (s.signer or not facts.enforced)
        ]
        if fitting := [s for s in of_type if fits_network(facts, s)] or ([] if can_build else of_type):
            where = "the image has" if fitting[0].place == "image" else "the node's cache has"
            reason = f"{where} {module_type} modules {wanted.driver} for {facts.release}"
            return Choice(module_type=module_type, source=fitting[0], reason=reason)
        if can_build:
            against = " compiled against this node's network driver" if of_type else ""
            reason = f"neither the image nor the node's cache has {module_type} modules {wanted.driver} for {facts.release}{against}"
            return Choice(
                module_type=module_type,
                source=None,
                reason=f"{reason}; the image has their source: compiling here",
            )
    if buildable and facts.enforced:
        none = f"neither the image nor the node's cache has {' or '.join(order)} modules {wanted.driver} for {facts.release}"
        raise signed_only(facts, "modules that are compiled on the node are unsigned", [none])
    raise nothing_fits(facts, wanted)


def fits_network(facts: Facts, source: Source) -> bool:
    """Whether nvidia-peermem of this set was compiled against the network driver of this node; also where nobody asked for it."""
    files = facts.network.build_files
    return files is None or source.modules.network == files.identity


def type_order(wanted: Wanted, gpus: Sequence[PciDevice] = ()) -> tuple[str, ...]:
    """Module types to try, best first: `auto` leaves out the ones that cannot drive a GPU of this node (Pascal needs the proprietary
    modules, Grace Hopper the open ones). A GPU that the catalogue does not know rules nothing out."""
    if wanted.module_type != "auto":
        return (wanted.module_type,)
    order = (
        ("open", "proprietary")
        if DriverVersion.parse(wanted.driver).branch >= OPEN_BY_DEFAULT
        else ("proprietary", "open")
    )
    kinds = [
        gpu.module_types
        for gpu in GPUS
        for device in gpus
        if any(first <= device.device <= last for first, last in gpu.devices)
    ]
    return (
        tuple(module_type for module_type in order if all(module_type in types for types in kinds)) or order
    )


def nothing_fits(facts: Facts, wanted: Wanted) -> Unsupported:
    types = " or ".join(type_order(wanted, facts.gpus))
    kernels = ", ".join(facts.image_kernels) or "no kernel"
    sources = ", ".join(facts.image.sources) if facts.image and facts.image.sources else "none"
    kept = "" if wanted.may_build else " (compiling was not asked for)"
    return Unsupported(
        f"this image has no {types} modules of driver {wanted.driver} for the running kernel {facts.release}",
        details=[
            f"modules in the image: for {kernels}",
            "modules in the node's cache: none that fit",
            f"sources in the image: {sources}{kept}",
        ],
        resolution=f"use an image with modules for {facts.release}, or one that can compile them (tag <driver>-<os>), "
        "or boot a kernel that the image knows",
    )
