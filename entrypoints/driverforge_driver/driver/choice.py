"""Where the modules come from (the image, the node's cache, a compilation here), and of which type they are.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import Unsupported
from driverforge_core.names import normalise
from driverforge_driver.driver.preflight import signed_only_error
from driverforge_driver.state.facts import DriverFacts, WantedDriver
from driverforge_driver.state.module_sets import ModuleSource, SourcePlace
from driverforge_driver.state.variables import WantedModuleType
from driverforge_host.catalogue import GPUS
from driverforge_host.gpu.pci import PciDevice

# NVIDIA's installer recommends the open modules from this branch on
OPEN_BY_DEFAULT = 560


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleChoice:
    """The module set to load."""

    module_type: str
    # None: it has to be compiled first
    source: ModuleSource | None
    # why this one, for log and plan
    reason: str


def choose_modules(facts: DriverFacts, wanted: WantedDriver) -> ModuleChoice:
    """The first source that fits: by module type, then image, node cache, compilation.

    Raises Unsupported, with what the image has, where there is none, or where the set lacks a wanted module.
    Raises NotPermitted where modules would have to be compiled for a kernel that takes signed ones only: what
    is compiled here has no signature.
    """
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
            where = "the image has" if fitting[0].place is SourcePlace.IMAGE else "the node's cache has"
            reason = f"{where} {module_type} modules {wanted.driver} for {facts.release}"
            if error := incomplete_error(fitting[0], wanted):
                raise error
            return ModuleChoice(module_type=module_type, source=fitting[0], reason=reason)
        if can_build:
            against = " compiled against this node's network driver" if of_type else ""
            unusable = "".join(f" (not taken: {line})" for line in facts.unusable_sets)
            reason = (
                f"neither the image nor the node's cache has {module_type} modules {wanted.driver} "
                f"for {facts.release}{against}{unusable}"
            )
            return ModuleChoice(
                module_type=module_type,
                source=None,
                reason=f"{reason}; the image has their source: compiling here",
            )
    if buildable and facts.enforced:
        none = (
            f"neither the image nor the node's cache has {' or '.join(order)} modules {wanted.driver} "
            f"for {facts.release}"
        )
        raise signed_only_error(facts, "modules that are compiled on the node are unsigned", [none])
    raise no_modules_error(facts, wanted)


def fits_network(facts: DriverFacts, source: ModuleSource) -> bool:
    """Whether the set's nvidia-peermem was compiled against this node's network driver.

    Also where nobody asked for it.
    """
    files = facts.network.build_files
    return files is None or source.modules.network == files.identity


def type_order(wanted: WantedDriver, gpus: Sequence[PciDevice] = ()) -> tuple[str, ...]:
    """Module types to try, the best first.

    With `auto`, types that cannot drive a GPU of this node are left out: Pascal needs the proprietary
    modules, Grace Hopper the open ones. A GPU that the catalogue does not know rules nothing out.
    """
    if wanted.module_type is not WantedModuleType.AUTO:
        return (wanted.module_type.value,)
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


def incomplete_error(source: ModuleSource, wanted: WantedDriver) -> Unsupported | None:
    """The error where the set lacks wanted modules: without nvidia-uvm, no CUDA program finds a GPU."""
    have = {normalise(name) for name in source.modules.modules}
    lacking = [name for name in wanted.names if name not in have]
    if not lacking:
        return None
    return Unsupported(
        f"the module set of driver {wanted.driver} lacks {', '.join(lacking)}",
        details=[f"{source.path} has {' '.join(sorted(source.modules.modules))}"],
        resolution="use an image with all of them; in the node's cache, remove that folder: it is made again",
    )


def no_modules_error(facts: DriverFacts, wanted: WantedDriver) -> Unsupported:
    """The error where nothing fits, with all that was looked at."""
    order = type_order(wanted, facts.gpus)
    types = " or ".join(order)
    kernels = ", ".join(facts.image_kernels) or "no kernel"
    sources = ", ".join(facts.image.sources) if facts.image and facts.image.sources else "none"
    kept = "" if wanted.may_build else " (compiling was not asked for)"
    # an image goes without the type that does not compile for a kernel
    in_image = [s.modules.module_type for s in facts.sources if s.place is SourcePlace.IMAGE]
    others = " and ".join(kind for kind in in_image if kind not in order)
    of_others = f"; for {facts.release} {others} ones" if others else ""
    return Unsupported(
        f"this image has no {types} modules of driver {wanted.driver} for the running kernel {facts.release}",
        details=[
            f"modules in the image: for {kernels}{of_others}",
            f"modules in the node's cache: {'; '.join(facts.unusable_sets) or 'none that fit'}",
            f"sources in the image: {sources}{kept}",
        ],
        resolution=f"use an image with {types} modules for {facts.release}, "
        "or one that can compile them (tag <driver>-<os>), or boot a kernel that the image knows",
    )
