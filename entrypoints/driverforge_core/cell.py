"""Cells: one entry of the matrix, named by a text that globs match.

A cell is (OS, architecture, driver, kernel release or compile on the node).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from driverforge_core.arch import ARCHITECTURES
from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsId
from driverforge_core.tags import ImageTag, as_in_tags, kernel_text

JIT = "jit"
NVIDIAS_REGISTRY = "nvcr.io"

_CELL = re.compile(
    rf"(?P<os>[a-z0-9._-]+?)-(?P<arch>{'|'.join(ARCHITECTURES)})"
    r"-(?P<driver>\d+(?:\.\d+)+(?:-grid)?)-(?P<kernel>.+)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellId:
    """'debian12-amd64-535.261.03-jit' (`kernel` is None), 'debian12-amd64-535.261.03-6.12.95+deb12-amd64'."""

    os: OsId
    arch: str
    driver: DriverVersion
    kernel: KernelRelease | None

    def __post_init__(self) -> None:
        if self.arch not in ARCHITECTURES:
            raise InputError(
                f"{self.arch!r} is not an architecture", resolution=f"use {' or '.join(ARCHITECTURES)}"
            )
        if self.kernel and self.kernel.text == JIT:
            raise InputError(f"a kernel named {JIT!r} cannot be in a cell's name")

    def __str__(self) -> str:
        return f"{self.os.key}-{self.arch}-{self.driver}-{self.kernel or JIT}"

    @classmethod
    def parse(cls, text: str) -> CellId:
        found = _CELL.fullmatch(text)
        if not found:
            raise InputError(
                f"{text!r} is not a cell",
                resolution="write <os>-<arch>-<driver>-<kernel or jit>, e.g. debian12-amd64-535.261.03-jit",
            )
        return cls(
            os=OsId.parse(found["os"]),
            arch=found["arch"],
            driver=DriverVersion(found["driver"]),
            kernel=None if found["kernel"] == JIT else KernelRelease.parse(found["kernel"]),
        )


def cell_of_image(image: str, arch: str, kernel: str = "") -> str:
    """The cell that makes a driver image, as a glob: 'ubuntu22.04-amd64-580.*-5.15.0-131-generic'.

    `arch` is '' where it may be any. `kernel` is the release that a node runs, if that is known: a tag cannot
    say each. Returns '' where the tag names no driver and system, as a digest, and where no cell makes it.
    """
    try:
        tag = ImageTag.parse(image.rpartition(":")[2])
        system = OsId.parse(tag.os)
    except InputError:
        return ""
    if tag.kernel and not tag.kernel.version:
        # a word, such as the '-grid' of a vGPU's driver
        return ""
    if system.id == "rhcos":
        # it takes RHEL's images, under names that nobody builds
        return ""
    driver = f"{tag.version}.*" if isinstance(tag.version, int) else str(tag.version)
    return f"{system.key}-{arch or '*'}-{driver}-{_release(tag, kernel) or JIT}"


def build_command(image: str, cell: str) -> str:
    """The command that makes a driver image, and that pushes it to where `image` is wanted, if it can.

    `driverforge push` calls every driver `driver`: an image of another name is made without being pushed. To
    NVIDIA's registry nobody else pushes: REGISTRY stands for one that the reader has.
    """
    registry, _, name = image.rpartition(":")[0].rpartition("/")
    registry = "REGISTRY" if registry.partition("/")[0] == NVIDIAS_REGISTRY else registry
    push = f" --registry {registry} --push" if registry and name == "driver" else ""
    return f"driverforge build --select '{cell}'{push}"


def _release(tag: ImageTag, running: str) -> str:
    """The kernel of a tag, '' where it has none; as a node has it, if the tag is that kernel's."""
    if tag.kernel is None:
        return ""
    written = kernel_text(tag.kernel)
    # a label has no '+' either, and says no more than the tag
    exact = running != written and as_in_tags(running) == written
    return running if exact else tag.kernel.text
