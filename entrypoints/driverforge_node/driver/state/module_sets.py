"""The module sets that could be loaded now: what the image and the node's cache hold for a kernel release."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from driverforge_core.errors import InputError
from driverforge_core.image import ImageFacts, ModuleSet
from driverforge_core.modinfo import read_modinfo, read_signature
from driverforge_node.driver.state import paths
from driverforge_node.ports import Files, Host, text_of


class SourcePlace(Enum):
    """Where a module set lies."""

    IMAGE = "image"
    CACHE = "cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSource:
    """A module set for this kernel release that could be loaded now."""

    place: SourcePlace
    # folder that holds the .ko files, as our own process sees it
    path: str
    modules: ModuleSet
    # who signed nvidia.ko, '' where it has no signature
    signer: str
    # parameters that nvidia.ko takes
    parameters: frozenset[str]
    # bytes of all its files
    size: int


def read_image(files: Files) -> ImageFacts | None:
    """What the image says about itself; None where we run in no image of ours.

    Raises InputError where it is damaged.
    """
    text = text_of(files, paths.IMAGE)
    return ImageFacts.from_json(text) if text else None


def module_sources(host: Host, release: str, driver: str) -> Iterator[ModuleSource]:
    """The module sets for this release and driver: the image's first, then those of the node's cache."""
    cache = host.node.root.rstrip("/") + paths.CACHE
    for place, folder in (
        (SourcePlace.IMAGE, f"{paths.MODULE_SETS}/{release}"),
        (SourcePlace.CACHE, f"{cache}/{driver}/{release}"),
    ):
        for module_type in host.files.list_dir(folder):
            path = f"{folder}/{module_type}"
            source = read_source(host.files, place, path)
            if source and source.modules.driver.text == driver and source.modules.kernel.text == release:
                yield source


def read_source(files: Files, place: SourcePlace, path: str) -> ModuleSource | None:
    """A folder's module set; None where it has none.

    An entry of the cache that is incomplete or damaged counts as none, since it can be made again. Raises
    InputError for a damaged image.
    """
    # the cache writes it last: a folder without it is unfinished
    text = text_of(files, f"{path}/{paths.MODULE_SET}")
    if not text:
        return None
    try:
        modules = ModuleSet.from_json(text)
        nvidia = read_module(files, f"{path}/nvidia.ko")
        info, signature = read_modinfo(nvidia), read_signature(nvidia)
    except InputError:
        if place is SourcePlace.IMAGE:
            raise
        return None
    names = frozenset(parm.partition(":")[0] for parm in info.get("parm", ()))
    signer = (signature.signer or signature.key_id.hex() or "a key without a name") if signature else ""
    size = sum(files.size(f"{path}/{name}") or 0 for name in modules.modules)
    return ModuleSource(place=place, path=path, modules=modules, signer=signer, parameters=names, size=size)


def read_module(files: Files, path: str) -> bytes:
    """A module file's bytes. Raises InputError with its path where it is missing, or is no module."""
    try:
        data = files.read_bytes(path)
        read_modinfo(data)
    except FileNotFoundError:
        raise InputError(
            f"{path} is missing", resolution="the image is damaged: pull it again, or make it anew"
        ) from None
    except InputError as error:
        raise InputError(
            f"{path}: {error.brief}",
            details=error.details,
            resolution="the image is damaged: pull it again, or make it anew",
        ) from error
    return data
