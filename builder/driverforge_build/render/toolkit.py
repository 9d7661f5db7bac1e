"""The image of NVIDIA's container toolkit: one for the nodes of every operating system.

NVIDIA's files come from a folder that the user names. It is /artifacts of NVIDIA's own image, or made by
unpacking NVIDIA's packages: `deb/usr/bin/nvidia-ctk`, `rpm/usr/…`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from driverforge_build.advice import Given
from driverforge_build.lock.pins import Lock, LockedPackage, TargetLock
from driverforge_build.matrix import Matrix, OsRow, Toolkit
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.select import select_cells
from driverforge_build.render.files import KINDS, PROGRAM, ContextFile, digest_of, read_files
from driverforge_build.render.needs import BaseImage, base_image, unique_packages
from driverforge_build.render.spec import base_labels, epoch_of
from driverforge_core.errors import InputError

PREFIX = "toolkit"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitCell:
    """A release for an architecture; `key` is what --select is compared with: 'toolkit-1.20.1-amd64'."""

    row: Toolkit
    arch: Arch

    @property
    def key(self) -> str:
        return f"{PREFIX}-{self.row.id}-{self.arch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitSpec:
    """One image; the counterpart of ImageSpec. `artifacts` maps paths below /artifacts to files."""

    id: str
    os: str
    arch: str
    family: str
    base: BaseImage
    python: str
    version: str
    pins: Mapping[str, tuple[LockedPackage, ...]]
    packages_only: tuple[str, ...]
    artifacts: Mapping[str, ContextFile] = field(repr=False)
    epoch: int
    stages: tuple[str, ...] = ()
    template: str = "toolkit/Dockerfile.j2"
    programs: tuple[str, ...] = ("driverctl", "nvidia-toolkit")
    repository: str = "container-toolkit"

    @property
    def shared_id(self) -> str:
        return self.id

    @property
    def title(self) -> str:
        return f"NVIDIA container toolkit {self.version} for every operating system ({self.arch})"

    def immutable_tag(self, revision: str) -> str:
        return f"v{self.version}-r{revision}"

    @property
    def alias_tag(self) -> str:
        """The tag that NVIDIA's images have."""
        return f"v{self.version}"

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        return (
            ("name", "NVIDIA Container Toolkit"),
            ("vendor", "driverforge"),
            ("version", self.version),
            ("release", "N/A"),
            ("summary", self.title),
            ("description", self.title),
            ("io.driverforge.cell", self.id),
            ("org.opencontainers.image.title", "NVIDIA Container Toolkit"),
            ("org.opencontainers.image.description", self.title),
            ("org.opencontainers.image.vendor", "driverforge"),
            ("org.opencontainers.image.version", self.version),
            *base_labels(self.base),
        )


def split(select: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Globs for toolkit images, which begin with 'toolkit', and those for driver images."""
    return tuple(glob for glob in select if glob.startswith(PREFIX)), tuple(
        glob for glob in select if not glob.startswith(PREFIX)
    )


def toolkit_cells(
    matrix: Matrix, *, select: Sequence[str], skip: Sequence[str] = ()
) -> tuple[ToolkitCell, ...]:
    """The toolkit images that were asked for; without a glob of theirs none.

    Raises UsageError where a glob matches none.
    """
    if not select:
        return ()
    return select_cells(
        [ToolkitCell(row=row, arch=arch) for row in matrix.toolkits for arch in row.archs],
        select=select,
        skip=skip,
    )


def toolkit_specs(
    cells: Iterable[ToolkitCell], matrix: Matrix, lock: Lock, *, given: Given
) -> tuple[ToolkitSpec, ...]:
    """The images of `cells`. Raises InputError with everything that is missing or not pinned."""
    specs: list[ToolkitSpec] = []
    problems: list[str] = []
    steps: list[str] = []
    for cell in cells:
        row, target = matrix.row(cell.row.system), lock.target(cell.row.system, cell.arch)
        files, problem, step = _artifacts(cell, given.artifacts.get(cell.arch, ""))
        lacking = [lack for lack in (_python_lack(cell, row, target, given), (problem, step)) if lack[0]]
        problems += [f"{cell.key}: {what}" for what, _ in lacking]
        steps += [todo for _, todo in lacking]
        if target and row and not problem:
            specs.append(_spec(cell, row, target, files, given.bases))
    if problems:
        raise InputError(
            "toolkit images cannot be made; nothing was written",
            details=problems,
            resolution="; ".join(dict.fromkeys(steps)),
        )
    return tuple(specs)


def _python_lack(
    cell: ToolkitCell, row: OsRow | None, target: TargetLock | None, given: Given
) -> tuple[str, str]:
    """What is wrong with the system whose Python the image uses, and what to do; '' where nothing is."""
    system = cell.row.system
    if row is None:
        return (
            f"your matrix leaves out {system}, whose Python the image uses",
            f"let `keep:` in {given.matrix or 'your matrix'} keep {system} with one driver",
        )
    if target is not None:
        return "", ""
    if cell.arch not in row.archs:
        return (
            f"your matrix has no {cell.arch} of {system}, whose Python the image uses",
            f"add {cell.arch} to its `archs:`, or leave the image out: --skip '{PREFIX}-*-{cell.arch}'",
        )
    step = given.command("lock", select=(f"{system}-{cell.arch}-*",))
    return f"the lock has nothing for {system}-{cell.arch}, whose Python the image uses", step


def _artifacts(cell: ToolkitCell, folder: str) -> tuple[dict[str, ContextFile], str, str]:
    """NVIDIA's files, or what is wrong with them and what to do."""
    if not folder:
        return (
            {},
            "NVIDIA's files are not part of driverforge",
            f"--toolkit-artifacts {cell.arch}=DIR (docs/toolkit.md says how to get them)",
        )
    if not any(Path(folder, kind, PROGRAM).is_file() for kind in KINDS):
        return (
            {},
            f"{folder} has neither deb/{PROGRAM} nor rpm/{PROGRAM}",
            "name the folder that has deb/ and rpm/, as docs/toolkit.md makes it",
        )
    files = read_files(Path(folder))
    found, pinned = digest_of(files), cell.row.sha256.get(cell.arch, "")
    if found == pinned:
        return files, "", ""
    said = f"{folder} has sha256 {found}, the matrix " + (f"says {pinned}" if pinned else "has no pin")
    row = f'toolkits: [{{id: "{cell.row.id}", sha256: {{{cell.arch}: {found}}}}}]'
    return {}, said, f"if these are NVIDIA's files, write into your matrix: {row}"


def _spec(
    cell: ToolkitCell,
    row: OsRow,
    target: TargetLock,
    files: Mapping[str, ContextFile],
    bases: Mapping[str, str],
) -> ToolkitSpec:
    # the tools are the same for every driver
    roles = next(iter(target.drivers.values()), {})
    return ToolkitSpec(
        id=cell.key,
        os=row.id,
        arch=cell.arch,
        family=row.family,
        base=base_image(row, target, bases),
        python=row.python.executable,
        version=cell.row.id,
        pins={"userspace": unique_packages(roles.get("tools", ()))},
        packages_only=target.packages_only,
        artifacts=files,
        epoch=epoch_of(target),
    )
