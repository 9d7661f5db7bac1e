"""layer: what one more kernel costs a registry and a node that have the driver for another one."""

from __future__ import annotations

import gzip
import json
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from bench.result import Measure, Series
from bench.workshop import Workshop
from driverforge_core.errors import CommandFailed, Unsupported

_CHUNK = 1 << 20
_ZSTD = b"\x28\xb5\x2f\xfd"
_GZIP = b"\x1f\x8b"


class SupportsRead(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer of an image; sizes in bytes."""

    blob: str
    compressed: int
    uncompressed: int


def run(workshop: Workshop) -> tuple[Measure, ...]:
    first, second = workshop.kernel_cells(2)
    references = workshop.built(first, second)
    workshop.say(f"layers of {references[0]} and {references[1]}")
    with tempfile.TemporaryDirectory(prefix="driverforge-bench-", dir="/var/tmp") as name:
        archive = Path(name) / "images.tar"
        workshop.docker().docker("save", "-o", archive, *references)
        one, other = (read(archive, reference) for reference in references)
    if [layer.blob for layer in one[:-1]] != [layer.blob for layer in other[:-1]] or one[-1].blob == other[
        -1
    ].blob:
        raise CommandFailed(
            "the images of two kernels differ in more than their last layer",
            details=[f"{layers[0]} {layers[1]}" for layers in zip(one, other, strict=False)],
        )
    workshop.note(
        f"{len(one) - 1} of {len(one)} layers are shared between {first.kernel} and {second.kernel}"
    )
    return tuple(
        Measure(
            what=f"one more kernel, {kind}",
            unit="bytes",
            ours=Series(of=f"layer for {second.kernel}", samples=(float(getattr(other[-1], kind)),)),
            reference=Series(
                of=f"whole image, {first.kernel}",
                samples=(float(sum(getattr(layer, kind) for layer in one)),),
            ),
        )
        for kind in ("compressed", "uncompressed")
    )


def read(archive: Path, reference: str) -> tuple[Layer, ...]:
    """Layers of an image in what `docker save` wrote, base first."""
    with tarfile.open(archive) as tar:
        manifest = json.load(_file(tar, "manifest.json"))
        image = next(image for image in manifest if reference in (image["RepoTags"] or ()))
        return tuple(_layer(tar, name) for name in image["Layers"])


def _file(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    found = tar.extractfile(name)
    if found is None:
        raise CommandFailed(f"docker save wrote an archive in which {name} is no file")
    return found


def _layer(tar: tarfile.TarFile, name: str) -> Layer:
    """The layer's size, compressed and not.

    Containerd's store holds layers compressed, Docker's own does not. The other size is computed, with gzip
    as a push has it.
    """
    blob = _file(tar, name)
    head = blob.read(4)
    blob.seek(0)
    size = tar.getmember(name).size
    if head == _ZSTD:
        raise Unsupported(f"{name} is compressed with zstd")
    if head[:2] == _GZIP:
        with gzip.open(blob) as plain:
            return Layer(blob=name, compressed=size, uncompressed=sum(len(chunk) for chunk in _chunks(plain)))
    packer = zlib.compressobj(wbits=31)
    compressed = sum(len(packer.compress(chunk)) for chunk in _chunks(blob)) + len(packer.flush())
    return Layer(blob=name, compressed=compressed, uncompressed=size)


def _chunks(file: SupportsRead) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk
