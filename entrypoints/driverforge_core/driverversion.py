"""NVIDIA driver versions: 550.90.07, 535.261.03, and 550.90.05-grid for vGPU guests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

from driverforge_core.errors import InputError

_LEGAL = re.compile(r"[1-9]\d{0,17}(?:\.\d{1,18}){1,3}(?:-grid)?", re.ASCII)


@total_ordering
@dataclass(frozen=True, slots=True)
class DriverVersion:
    """A full version, kept as NVIDIA writes it ('550.90.07' is not 550.90.7), ordered by its numbers.

    Raises InputError for anything else, a bare branch ('550') included.
    """

    text: str

    def __post_init__(self) -> None:
        if not _LEGAL.fullmatch(self.text):
            raise InputError(
                f"{self.text[:64]!r} is not a driver version",
                resolution="write the full version in quotes, e.g. '550.90.07' (550 alone is a branch)",
            )

    @classmethod
    def parse(cls, text: str) -> DriverVersion:
        return cls(text)

    def __str__(self) -> str:
        return self.text

    def __lt__(self, other: DriverVersion) -> bool:
        return (self.parts, self.text) < (other.parts, other.text)

    @property
    def parts(self) -> tuple[int, ...]:
        """(550, 90, 7) for 550.90.07."""
        return tuple(int(part) for part in self.without_grid.split("."))

    @property
    def branch(self) -> int:
        """550 for 550.90.07."""
        return self.parts[0]

    @property
    def without_grid(self) -> str:
        """Its name in an image tag: only the archive of a vGPU's guest driver is named with -grid."""
        return self.text.removesuffix("-grid")
