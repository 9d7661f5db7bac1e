"""The module sets that could be loaded now: what the image and the node's cache hold for a kernel release."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from driverforge_core.errors import InputError
from driverforge_core.image import ImageFacts, ModuleSet
from driverforge_core.modinfo import read_modinfo, read_signature
from driverforge_driver.state import paths
from driverforge_host.ports import Files, Host, text_of


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSets:
    """What the image and the node's cache hold for a driver and a kernel release."""

    # the image's before the cache's
    sources: tuple[ModuleSource, ...]
    # entries of the cache that cannot be taken: '<path>: <why>'
    unusable: tuple[str, ...]


def module_sets(
    host: Host,
    release: str,
    image: ImageFacts | None,
    driver: str,
    *,
    filled: Callable[[ModuleSource], bool] = lambda _: False,
) -> ModuleSets:
    """The module sets for this release and driver.

    Raises InputError where the image is damaged. An entry of the node's cache can be made again: one that is
    damaged, incomplete, or made from other sources than this image's counts as none. Each of its files is
    compared with its digest, but for a set of which `filled` says that the load tree has it: a tree is filled
    with what was compared.
    """
    found = list(_image_sets(host.files, release, driver))
    unusable = []
    cache = f"{host.node.root.rstrip('/')}{paths.CACHE}/{driver}/{release}"
    for module_type in host.files.list_dir(cache):
        path = f"{cache}/{module_type}"
        try:
            source = _cached_set(host.files, path, image, filled)
        except InputError as error:
            unusable.append(f"{path}: {error.brief}")
            continue
        if source and _fits(source, release, driver):
            found.append(source)
    return ModuleSets(sources=tuple(found), unusable=tuple(unusable))


def _fits(source: ModuleSource, release: str, driver: str) -> bool:
    return source.modules.driver.text == driver and source.modules.kernel.text == release


def _image_sets(files: Files, release: str, driver: str) -> Iterator[ModuleSource]:
    folder = f"{paths.MODULE_SETS}/{release}"
    for module_type in files.list_dir(folder):
        source = _read_set(files, SourcePlace.IMAGE, f"{folder}/{module_type}")
        if source and _fits(source, release, driver):
            yield source


def _cached_set(
    files: Files, path: str, image: ImageFacts | None, filled: Callable[[ModuleSource], bool]
) -> ModuleSource | None:
    source = _read_set(files, SourcePlace.CACHE, path)
    if source is None:
        return None
    wanted = image.source_digests.get(source.modules.module_type, "") if image else ""
    if _compiled_from(files, path) != wanted:
        raise InputError("it was compiled from other sources than this image has")
    if not filled(source):
        for name, digest in source.modules.modules.items():
            check_digest(f"{path}/{name}", read_module(files, f"{path}/{name}"), digest)
    return source


def _compiled_from(files: Files, path: str) -> str:
    """The digest of the sources that an entry was compiled from, '' where it does not say."""
    try:
        key = json.loads(text_of(files, f"{path}/{paths.BUILT_WITH}") or "{}")
    except ValueError as error:
        raise InputError(f"{paths.BUILT_WITH} is not JSON") from error
    found = key.get("sources", "") if isinstance(key, dict) else ""
    return found if isinstance(found, str) else ""


def _read_set(files: Files, place: SourcePlace, path: str) -> ModuleSource | None:
    """A folder's module set; None where it has none. Raises InputError where it is damaged."""
    # the cache writes it last: a folder without it is unfinished
    text = text_of(files, f"{path}/{paths.MODULE_SET}")
    if not text:
        return None
    modules = ModuleSet.from_json(text)
    nvidia = read_module(files, f"{path}/nvidia.ko")
    info, signature = read_modinfo(nvidia), read_signature(nvidia)
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


def check_digest(path: str, data: bytes, digest: str) -> None:
    """Raises InputError where `data`, read from `path`, has another digest ('sha256:<hex>')."""
    found = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if found != digest:
        raise InputError(
            f"{path} is damaged",
            details=[f"{found} is there, {digest} is written in {paths.MODULE_SET}"],
            resolution="the image is damaged: pull it again, or make it anew",
        )
