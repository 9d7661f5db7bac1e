"""The module sets of an image, and what is wrong with a file before any kernel has seen it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import InputError
from driverforge_core.image import MODULE_SET_NAME, ModuleSet
from driverforge_core.kernel import KernelRelease
from driverforge_core.modinfo import ModuleSignature, exported_symbols, read_modinfo, read_signature
from driverforge_core.names import NVIDIA_MODULES, normalise


@dataclass(frozen=True, kw_only=True)
class ImageModule:
    """A module file of a set. `digest` is what module-set.json says that it is."""

    module_type: str
    file: str
    content: bytes
    digest: str

    @property
    def path(self) -> str:
        """'open/nvidia-uvm.ko'."""
        return f"{self.module_type}/{self.file}"

    @property
    def name(self) -> str:
        """The kernel's name of it: 'nvidia_uvm'."""
        return normalise(self.file)

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def info(self) -> Mapping[str, list[str]]:
        """Its .modinfo; raises InputError for a file that is no module."""
        return read_modinfo(self.content)

    @cached_property
    def depends(self) -> tuple[str, ...]:
        """The kernel's names of the modules that it says it needs; none for a file that is no module."""
        try:
            [*texts] = self.info.get("depends", [])
        except InputError:
            return ()
        return tuple(normalise(name) for text in texts for name in text.split(",") if name)

    @cached_property
    def exports(self) -> frozenset[str]:
        """What it offers to others; nothing for a file that is no module."""
        try:
            return exported_symbols(self.content)
        except InputError:
            return frozenset()

    @cached_property
    def signature(self) -> ModuleSignature | None:
        """None for an unsigned module, and for one with a trailer that cannot be read."""
        try:
            return read_signature(self.content)
        except InputError:
            return None

    def problems(self, described: ModuleSet) -> Iterator[str]:
        """What is not as its set says."""
        if self.digest != f"sha256:{self.sha256}":
            yield f"its content is sha256:{self.sha256}, and {MODULE_SET_NAME} says {self.digest}"
        try:
            info, signature = self.info, read_signature(self.content)
        except InputError as error:
            yield error.brief
            return
        vermagic = (info.get("vermagic") or [""])[0]
        # with CONFIG_MODVERSIONS the kernel itself does not look at this word (same_magic, kernel/module)
        if vermagic.partition(" ")[0] != described.kernel.text:
            yield f"its vermagic is '{vermagic.strip()}', and it lies with the modules of {described.kernel}"
        version = (info.get("version") or [described.driver.text])[0]
        if version != described.driver.text:
            yield f"it calls itself version {version}, and its set {described.driver}"
        if bool(signature) != bool(described.signer):
            signed = "signed" if signature else "not signed"
            yield f"it is {signed}, and {MODULE_SET_NAME} names {described.signer or 'no signer'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageModules:
    """One module set of an image, in an order in which its modules can be inserted."""

    described: ModuleSet
    modules: tuple[ImageModule, ...]

    @property
    def signed(self) -> tuple[ImageModule, ...]:
        return tuple(module for module in self.modules if module.signature)


def read_sets(
    files: Mapping[str, bytes], *, driver: DriverVersion, kernel: KernelRelease, module_types: tuple[str, ...]
) -> tuple[ImageModules, ...]:
    """The sets below /opt/lib/modules/RELEASE: `files` maps 'open/nvidia.ko' to its content.

    Raises InputError where a type that the cell has is missing, or a set is not what it says.
    """
    return tuple(_read_set(files, module_type, driver, kernel) for module_type in module_types)


def _read_set(
    files: Mapping[str, bytes], module_type: str, driver: DriverVersion, kernel: KernelRelease
) -> ImageModules:
    again = "build the image again: driverforge build --no-cache"
    description = files.get(f"{module_type}/{MODULE_SET_NAME}")
    if description is None:
        raise InputError(f"the image has no {module_type} modules for {kernel}", resolution=again)
    described = ModuleSet.from_json(description.decode("utf-8", "replace"))
    told = (described.module_type, described.driver, described.kernel)
    expected = (module_type, driver, kernel)
    if told != expected:
        raise InputError(
            f"{module_type}/{MODULE_SET_NAME} describes other modules",
            details=[f"described: {' '.join(map(str, told))}", f"expected: {' '.join(map(str, expected))}"],
            resolution=again,
        )
    there = {
        path.partition("/")[2]: content
        for path, content in files.items()
        if path.startswith(f"{module_type}/") and path.endswith(".ko")
    }
    if there.keys() != described.modules.keys():
        raise InputError(
            f"the {module_type} modules are not those that {MODULE_SET_NAME} names",
            details=[f"there: {' '.join(sorted(there))}", f"named: {' '.join(sorted(described.modules))}"],
            resolution=again,
        )
    modules = [
        ImageModule(module_type=module_type, file=file, content=content, digest=described.modules[file])
        for file, content in there.items()
    ]
    return ImageModules(described=described, modules=in_order(modules))


def in_order(modules: list[ImageModule]) -> tuple[ImageModule, ...]:
    """Each module behind those of the set that it depends on; else NVIDIA's own order, then by name."""
    waiting = {module.name: module for module in sorted(modules, key=_usual_place)}
    ordered: list[ImageModule] = []
    while waiting:
        ready = next(
            (name for name, module in waiting.items() if not waiting.keys() & module.depends),
            # a ring of dependencies: no kernel takes it, and it shall say so
            next(iter(waiting)),
        )
        ordered.append(waiting.pop(ready))
    return tuple(ordered)


def _usual_place(module: ImageModule) -> tuple[int, str]:
    usual = NVIDIA_MODULES.index(module.name) if module.name in NVIDIA_MODULES else len(NVIDIA_MODULES)
    return usual, module.name
