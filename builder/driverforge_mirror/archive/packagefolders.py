"""Carried packages as folders that apt, dnf and zypper read, and what their configuration has to say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from driverforge_core.arch import to_machine
from driverforge_core.errors import InputError
from driverforge_mirror.archive.volumes import file_sum, storage
from driverforge_mirror.copying.copier import Source
from driverforge_mirror.copying.stream import BlobStream
from driverforge_mirror.lists.loads import Load
from driverforge_mirror.lists.mediatypes import FOLDER_URL, PACKAGES, PACKAGES_CONFIG, TITLE
from driverforge_oci.client import Descriptor, Manifest

_PIECE = 1 << 20
_CONFIG_LIMIT = 1 << 20
_SEGMENT = r"[A-Za-z0-9_][A-Za-z0-9._+~:%@^=-]*"
_TITLE = re.compile(rf"{_SEGMENT}(/{_SEGMENT})*")
_NAME = re.compile(r"[a-z0-9][a-z0-9.]*")


class _Config(TypedDict):
    os: str
    arch: str
    manager: str
    definition: str


_CONFIGS = TypeAdapter(_Config)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOut:
    """The packages of an OS and architecture: `folder` is theirs, `definition` what names their repositories.

    `files` counts those that were written, `held` those that were there.
    """

    os: str
    manager: str
    folder: Path
    definition: str
    files: int
    held: int


def lay_out(source: Source, loads: Iterable[Load], folder: Path, url: str) -> list[LaidOut]:
    """Write all packages that are carried below a folder, which nodes reach at `url`.

    InputError for what would lie elsewhere, or has other bytes than its digest; StorageFailed.
    """
    found = []
    for load in loads:
        if load.made is not None and load.made.document.get("artifactType") == PACKAGES:
            _check_parts(load, load.made)
            stream = partial(_stream, source, load)
            config = _config(stream, load.image, load.made.config)
            found.append(_laid_out(stream, load.made, config, folder, url))
    return found


def _check_parts(load: Load, made: Manifest) -> None:
    """InputError where the manifest has other parts than the list, whose digests and sizes were checked."""
    parts = {one.digest: one.size for one in (made.config, *made.layers)}
    if parts != dict(load.blobs):
        raise InputError(
            f"{load.image} has other parts than the list says", resolution="make the archive anew"
        )


def _config(stream: Callable[[Descriptor], BlobStream], image: str, descriptor: Descriptor) -> _Config:
    if descriptor.media_type != PACKAGES_CONFIG or descriptor.size > _CONFIG_LIMIT:
        raise InputError(f"{image} is of another kind of packages", resolution="use a newer driverforge")
    data = b"".join(stream(descriptor).take(descriptor.size))
    try:
        config = _CONFIGS.validate_json(data, strict=True)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5]]
        raise InputError(
            f"{image} does not say what it holds", details=problems, resolution="make the archive anew"
        ) from None
    if not _NAME.fullmatch(config["os"]) or not _NAME.fullmatch(config["arch"]):
        raise InputError(
            f"{image} says that it is for {config['os']!r} and {config['arch']!r}",
            resolution="make the archive anew",
        )
    return config


def _laid_out(
    stream: Callable[[Descriptor], BlobStream], made: Manifest, config: _Config, folder: Path, url: str
) -> LaidOut:
    debian = config["manager"] == "apt"
    machine = config["arch"] if debian else to_machine(config["arch"])
    own = folder / f"{config['os']}-{machine}"
    files = held = 0
    for layer, descriptor in zip(made.document["layers"], made.layers, strict=True):
        notes = layer.get("annotations")
        path = _path(own, str(notes.get(TITLE, "")) if isinstance(notes, dict) else "")
        if _is(path, descriptor):
            held += 1
            continue
        _write(path, stream(descriptor))
        files += 1
    address = f"{url.rstrip('/')}/{config['os']}-{machine if debian else '$basearch'}"
    return LaidOut(
        os=config["os"],
        manager=config["manager"],
        folder=own,
        definition=config["definition"].replace(FOLDER_URL, address),
        files=files,
        held=held,
    )


def _stream(source: Source, load: Load, descriptor: Descriptor) -> BlobStream:
    digest = descriptor.digest
    return BlobStream(lambda offset: source.open_blob(load, digest, offset), digest, descriptor.size)


def _path(own: Path, title: str) -> Path:
    """A file's place. InputError for one outside of the folder: the list has come from elsewhere."""
    path = own / title
    if not _TITLE.fullmatch(title) or not path.resolve().is_relative_to(own.resolve()):
        raise InputError(f"{title!r} is no file's name below {own}", resolution="make the archive anew")
    return path


def _is(path: Path, descriptor: Descriptor) -> bool:
    with storage(path):
        if not path.is_file() or path.stat().st_size != descriptor.size:
            return False
    return f"sha256:{file_sum(path)}" == descriptor.digest


def _write(path: Path, stream: BlobStream) -> None:
    """It appears by rename, complete: a server may serve the folder meanwhile."""
    part = path.with_name(f".{path.name}.part")
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            while piece := stream.read(_PIECE):
                file.write(piece)
        part.replace(path)


def configurations(laid_out: Sequence[LaidOut]) -> Iterator[tuple[str, str]]:
    """A ConfigMap for `driver.repoConfig` of each OS: the name of its file, and its text."""
    for os in sorted({one.os for one in laid_out}):
        mine = [one for one in laid_out if one.os == os]
        # of two architectures the same, where the package manager knows its own
        definition = "".join(dict.fromkeys(one.definition for one in mine))
        key = "driverforge.list" if mine[0].manager == "apt" else "driverforge.repo"
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": configuration_name(os)},
            "data": {key: definition},
        }
        yield f"repo-config-{os}.yaml", yaml.safe_dump(document, sort_keys=False)


def configuration_name(os: str) -> str:
    return f"driverforge-packages-{os}"
