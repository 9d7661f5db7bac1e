"""The folder of one image: what `docker buildx build` is given.

A value first (path → content), a folder on disk after that.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from driverforge_build import resources
from driverforge_build.advice import Given
from driverforge_build.lock.pins import Lock, LockedPackage
from driverforge_build.matrix import Cell, Matrix
from driverforge_build.matrix.programcells import OperatorCell, ToolkitCell
from driverforge_build.render import templates
from driverforge_build.render.files import ContextFile
from driverforge_build.render.library import DRIVER_IMAGE, TOOLKIT_IMAGE, library_files
from driverforge_build.render.operator import OperatorSpec, operator_specs
from driverforge_build.render.programs import ProgramsSpec
from driverforge_build.render.spec import FILE_TIME, image_specs
from driverforge_build.render.templates import AnyImage
from driverforge_build.render.toolkit import ToolkitSpec, toolkit_specs
from driverforge_core.errors import StorageFailed
from driverforge_core.image import FACTS_PATH

_PROGRAMS, _LIBRARY = "root/usr/local/bin", "root/opt/driverforge/lib"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """Everything that goes into an image but the bytes of the base and of the packages.

    Dockerfile and pins name those. `inputs` is the sha256 over it all: two images with the same value were
    made from the same things. The date that an image states (`image.epoch`) is none of them: it moves with
    every repository that was read, and no file of the image has it.
    """

    image: AnyImage
    entries: Mapping[str, ContextFile]
    inputs: str

    @property
    def revision(self) -> str:
        """The revision of the immutable tag: the inputs' first 12 hexadecimal digits."""
        return self.inputs[:12]

    @property
    def signed(self) -> bool:
        """Whether the image has modules that the key of a certificate signs."""
        return "certificate.der" in self.entries


def context_of(image: AnyImage, folder: Path) -> BuildContext:
    """The context of an image, from the templates and scripts in `folder`."""
    scripts = [f"{image.family}/manager", *(f"scripts/{name}" for name in _scripts(image))]
    entries = {
        "Dockerfile": ContextFile(content=templates.dockerfile(image, folder).encode()),
        **_own(image),
        **{
            f"pins/{name}": ContextFile(content=pin_list(packages, image.packages_only).encode())
            for name, packages in image.pins.items()
        },
        **{
            f"scripts/{Path(name).name}": ContextFile(content=(folder / name).read_bytes(), executable=True)
            for name in scripts
        },
        **{
            f"{_PROGRAMS}/{name}": ContextFile(
                content=templates.launcher(image, name, folder).encode(), executable=True
            )
            for name in image.programs
        },
    }
    return BuildContext(image=image, entries=dict(sorted(entries.items())), inputs=_digest_of(image, entries))


@cache
def _library(packages: tuple[str, ...]) -> Mapping[str, ContextFile]:
    """What all images of one kind have alike, made once for all of them."""
    files = library_files(packages)
    return {f"{_LIBRARY}/{name}": ContextFile(content=content) for name, content in files.items()}


def _digest_of(image: AnyImage, entries: Mapping[str, ContextFile]) -> str:
    digest = hashlib.sha256(f"platform=linux/{image.arch}\n".encode())
    for path, entry in sorted(entries.items()):
        digest.update(f"{path}\0{int(entry.executable)}\0{len(entry.content)}\0".encode() + entry.content)
        if entry.link:
            digest.update(f"link={entry.link}\n".encode())
    return digest.hexdigest()


def _own(image: AnyImage) -> dict[str, ContextFile]:
    """What only images of one kind have.

    A driver image says of itself what it holds; a toolkit image has NVIDIA's files, the operator's wheels.
    """
    if isinstance(image, OperatorSpec):
        return {f"{_LIBRARY}/{name}": entry for name, entry in image.library.items()}
    if isinstance(image, ToolkitSpec):
        return {
            **_library(TOOLKIT_IMAGE),
            **{f"artifacts/{name}": entry for name, entry in image.artifacts.items()},
        }
    facts = {
        **({} if image.vendor_modules else {f"jit{FACTS_PATH}": image.jit_facts}),
        **({f"precompiled{FACTS_PATH}": image.facts} if image.kernel else {}),
    }
    made = {name: ContextFile(content=value.to_json().encode()) for name, value in facts.items()}
    own = {**_library(DRIVER_IMAGE), **made}
    if image.certificate:
        own["certificate.der"] = ContextFile(content=image.certificate.der)
    return own


_DRIVER_SCRIPTS = {
    "packages": ("place-source",),
    "runfile": ("unpack-archive",),
    "image": ("take-driver", "unpack-archive"),
}
"""What puts sources, and an archive's user space, into place, by payload."""


def _scripts(image: AnyImage) -> tuple[str, ...]:
    """The scripts that an image's Dockerfile calls; another one's change leaves its inputs alone."""
    fetch = ("fetch-pinned", "settle-times", *(("check-signatures",) if image.packages_only else ()))
    if isinstance(image, ProgramsSpec):
        return fetch
    firmware = ("place-firmware",) if image.firmware_tree or image.payload != "packages" else ()
    if image.vendor_modules:
        archive = ("unpack-archive",) if image.archive else ()
        return (*fetch, "place-modules", *archive, *firmware)
    signing = ("attach-signatures", "verify-signatures") if image.certificate else ()
    facts = ("join-facts",) if image.payload == "image" and image.kernel else ()
    return (*fetch, *_DRIVER_SCRIPTS[image.payload], *firmware, *signing, *facts)


def pin_list(packages: Iterable[LockedPackage], packages_only: Collection[str] = ()) -> str:
    """The list that dockerfiles/scripts/fetch-pinned reads, one package a line, sorted.

    `packages_only` are the repositories of which nothing but the packages is signed.
    """
    ordered = sorted(packages, key=lambda package: (package.name, package.version))
    lines = [
        f"{pin.sha256} {pin.size} {pin.suite} {pin.path} {pin.name} {pin.version}"
        + (" signed\n" if pin.suite in packages_only else "\n")
        for pin in ordered
    ]
    head = "# SHA256 SIZE REPOSITORY PATH NAME VERSION [signed]; written by driverforge from the lock\n"
    return head + "".join(lines)


def write_context(context: BuildContext, folder: Path) -> None:
    """Make `folder` hold exactly the context. Raises StorageFailed.

    A file that is right already is left alone. Times of files are made from their content, not from today's
    date.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # what is not the context's is removed below; a Dockerfile is the first that we write
        if not (folder / "Dockerfile").is_file() and any(folder.iterdir()):
            raise StorageFailed(
                f"{folder} is not empty and holds no Dockerfile: driverforge did not make it",
                details=[f"it holds {path.name}" for path in sorted(folder.iterdir())[:5]],
                resolution="give another --output, or empty that folder yourself",
            )
        for stale in sorted(folder.rglob("*"), reverse=True):
            inside = stale.relative_to(folder).as_posix()
            if stale.is_dir() and not stale.is_symlink():
                if not any(path.startswith(f"{inside}/") for path in context.entries):
                    stale.rmdir()
            elif inside not in context.entries:
                stale.unlink()
        for path, entry in context.entries.items():
            _write(folder / path, entry)
        for made in {folder / parent for path in context.entries for parent in Path(path).parents}:
            # the image gets folders with mode and time: neither may depend on our umask, or on today
            made.chmod(0o755)
            os.utime(made, (FILE_TIME, FILE_TIME))
    except OSError as error:
        raise StorageFailed(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            resolution="give another --output",
        ) from error


def modification_time(entry: ContextFile) -> int:
    """A time for a file that is the same for the same content, and another one for other content.

    BuildKit takes a context's file of the same size and time for unchanged, and a pin that changes keeps its
    size. The time lies up to twelve days before FILE_TIME.
    """
    return FILE_TIME - int(hashlib.sha256(entry.content).hexdigest()[:5], 16)


def _write(path: Path, entry: ContextFile) -> None:
    if entry.link:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not (path.is_symlink() and str(path.readlink()) == entry.link):
            path.unlink(missing_ok=True)
            path.symlink_to(entry.link)
        return
    mode = 0o755 if entry.executable else 0o644
    if not (path.is_file() and path.read_bytes() == entry.content):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(entry.content)
    path.chmod(mode)
    stamp = modification_time(entry)
    os.utime(path, (stamp, stamp))


def driver_contexts(cells: Iterable[Cell], lock: Lock, *, given: Given) -> tuple[BuildContext, ...]:
    """The contexts of cells. Raises InputError where a download has no pin."""
    folder = resources.templates()
    return tuple(context_of(image, folder) for image in image_specs(cells, lock, given=given))


def toolkit_contexts(
    cells: Iterable[ToolkitCell], matrix: Matrix, lock: Lock, *, given: Given
) -> tuple[BuildContext, ...]:
    """The contexts of toolkit images. Raises InputError where NVIDIA's files, or a pin, are missing."""
    folder = resources.templates()
    return tuple(context_of(image, folder) for image in toolkit_specs(cells, matrix, lock, given=given))


def operator_contexts(
    cells: Iterable[OperatorCell], matrix: Matrix, lock: Lock, *, given: Given
) -> tuple[BuildContext, ...]:
    """The contexts of operator images. Raises InputError where wheels, or the system's pins, are missing."""
    folder = resources.templates()
    return tuple(context_of(image, folder) for image in operator_specs(cells, matrix, lock, given=given))
