"""Cells: one entry of the matrix, named by a text that globs match.

A cell is (OS, architecture, driver, kernel release or compile on the node).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from driverforge_core.arch import ARCHITECTURES
from driverforge_core.driver import DriverVersion
from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsId

JIT = "jit"

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
