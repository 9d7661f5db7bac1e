"""The image of NVIDIA's container toolkit: one for the nodes of every operating system.

NVIDIA's files come from a folder that the user names. It is /artifacts of NVIDIA's own image, or made by
unpacking NVIDIA's packages: `deb/usr/bin/nvidia-ctk`, `rpm/usr/…`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from driverforge_build.advice import Given
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import Matrix
from driverforge_build.matrix.programcells import ToolkitCell
from driverforge_build.render.files import KINDS, PROGRAM, ContextFile, digest_of, read_files
from driverforge_build.render.programs import Lack, ProgramsSpec, all_or_none, on_system


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitSpec(ProgramsSpec):
    """One image. `artifacts` maps paths below /artifacts to files."""

    artifacts: Mapping[str, ContextFile] = field(repr=False)

    name = "NVIDIA Container Toolkit"
    template = "toolkit/Dockerfile.j2"
    programs: ClassVar[tuple[str, ...]] = (
        "driverctl",
        "nvidia-toolkit",
        "nvidia-validator",
        "driver-manager",
    )
    repository = "container-toolkit"

    @property
    def title(self) -> str:
        return f"NVIDIA container toolkit {self.version} for every operating system ({self.arch})"


def toolkit_specs(
    cells: Iterable[ToolkitCell], matrix: Matrix, lock: Lock, *, given: Given
) -> tuple[ToolkitSpec, ...]:
    """The images of `cells`. Raises InputError with everything that is missing or not pinned."""
    return all_or_none("toolkit", ((cell, _image(cell, matrix, lock, given)) for cell in cells))


def _image(cell: ToolkitCell, matrix: Matrix, lock: Lock, given: Given) -> ToolkitSpec | list[Lack]:
    system, files = on_system(cell, matrix, lock, given), _artifacts(cell, given.artifacts.get(cell.arch, ""))
    if isinstance(system, Lack) or isinstance(files, Lack):
        return [one for one in (system, files) if isinstance(one, Lack)]
    return ToolkitSpec(**system.values(), version=cell.row.id, artifacts=files)


def _artifacts(cell: ToolkitCell, folder: str) -> dict[str, ContextFile] | Lack:
    """NVIDIA's files, or what is wrong with them and what to do."""
    if not folder:
        return Lack(
            "NVIDIA's files are not part of driverforge",
            f"--toolkit-artifacts {cell.arch}=DIR (docs/toolkit.md says how to get them)",
        )
    if not any(Path(folder, kind, PROGRAM).is_file() for kind in KINDS):
        return Lack(
            f"{folder} has neither deb/{PROGRAM} nor rpm/{PROGRAM}",
            "name the folder that has deb/ and rpm/, as docs/toolkit.md makes it",
        )
    files = read_files(Path(folder))
    found, pinned = digest_of(files), cell.row.sha256.get(cell.arch, "")
    if found == pinned:
        return files
    said = f"{folder} has sha256 {found}, the matrix " + (f"says {pinned}" if pinned else "has no pin")
    row = f'toolkits: [{{id: "{cell.row.id}", sha256: {{{cell.arch}: {found}}}}}]'
    return Lack(said, f"if these are NVIDIA's files, write into your matrix: {row}")
