"""What images without a driver have in common: our programs, on the Python of a system."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, TypeVar

from driverforge_build.advice import Given
from driverforge_build.lock.pins import Lock, LockedPackage, TargetLock
from driverforge_build.matrix import Matrix, OsRow
from driverforge_build.matrix.programcells import ProgramsCell
from driverforge_build.render.requirements import BaseImage, base_image, unique_packages
from driverforge_build.render.spec import FILE_TIME, base_labels, epoch_of
from driverforge_core.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSystem:
    """What an image's system decides of it."""

    id: str
    os: str
    arch: str
    family: str
    base: BaseImage
    python: str
    pins: Mapping[str, tuple[LockedPackage, ...]]
    packages_only: tuple[str, ...]
    epoch: int

    def values(self) -> dict[str, Any]:
        """By field: what whoever has these fields and more is made of."""
        return {one.name: getattr(self, one.name) for one in fields(OnSystem)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramsSpec(OnSystem):
    """One image; the counterpart of ImageSpec."""

    version: str

    name: ClassVar[str]
    template: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    repository: ClassVar[str]
    stages: ClassVar[tuple[str, ...]] = ()
    file_time: ClassVar[int] = FILE_TIME
    vendor_lists: ClassVar[frozenset[str]] = frozenset()
    entitled_lists: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @property
    def shared_id(self) -> str:
        return self.id

    @property
    def title(self) -> str:
        return f"{self.name} {self.version} ({self.arch})"

    def immutable_tag(self, revision: str) -> str:
        return f"v{self.version}-r{revision}"

    @property
    def alias_tag(self) -> str:
        """The tag that NVIDIA's images have."""
        return f"v{self.version}"

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        return (
            ("name", self.name),
            ("vendor", "driverforge"),
            ("version", self.version),
            ("release", "N/A"),
            ("summary", self.title),
            ("description", self.title),
            ("io.driverforge.cell", self.id),
            ("org.opencontainers.image.title", self.name),
            ("org.opencontainers.image.description", self.title),
            ("org.opencontainers.image.vendor", "driverforge"),
            ("org.opencontainers.image.version", self.version),
            *base_labels(self.base),
        )


class Lack(NamedTuple):
    """Why an image cannot be made, and what to do about it."""

    problem: str
    step: str


def on_system(cell: ProgramsCell, matrix: Matrix, lock: Lock, given: Given) -> OnSystem | Lack:
    """What a cell's system decides, or what is wrong with the system."""
    row, target = matrix.row(cell.system), lock.target(cell.system, cell.arch)
    if row is None:
        return Lack(
            f"your matrix leaves out {cell.system}, whose Python the image uses",
            f"let `keep:` in {given.matrix or 'your matrix'} keep {cell.system} with one driver",
        )
    if target is not None:
        return _on(cell, row, target, given.bases)
    if cell.arch not in row.archs:
        return Lack(
            f"your matrix has no {cell.arch} of {row.id}, whose Python the image uses",
            f"add {cell.arch} to its `archs:`, or leave the image out: --skip '{cell.key}'",
        )
    return Lack(
        f"the lock has nothing for {row.id}-{cell.arch}, whose Python the image uses",
        given.command("lock", select=(f"{row.id}-{cell.arch}-*",)),
    )


def _on(cell: ProgramsCell, row: OsRow, target: TargetLock, bases: Mapping[str, str]) -> OnSystem:
    # the tools are the same for every driver
    roles = next(iter(target.drivers.values()), {})
    return OnSystem(
        id=cell.key,
        os=row.id,
        arch=cell.arch,
        family=row.family,
        base=base_image(row, target, bases),
        python=row.python.executable,
        pins={"userspace": unique_packages(roles.get("tools", ()))},
        packages_only=target.packages_only,
        epoch=epoch_of(target),
    )


SpecT = TypeVar("SpecT", bound=ProgramsSpec)


def all_or_none(what: str, found: Iterable[tuple[ProgramsCell, SpecT | list[Lack]]]) -> tuple[SpecT, ...]:
    """The images of cells. Raises InputError with all that any of them lacks."""
    made: list[SpecT] = []
    lacks: list[tuple[str, Lack]] = []
    for cell, one in found:
        if isinstance(one, list):
            lacks += [(cell.key, lack) for lack in one]
        else:
            made.append(one)
    if lacks:
        raise InputError(
            f"{what} images cannot be made; nothing was written",
            details=[f"{key}: {lack.problem}" for key, lack in lacks],
            resolution="; ".join(dict.fromkeys(lack.step for _, lack in lacks)),
        )
    return tuple(made)
