"""Header probes: what in a kernel's headers makes a driver's source fail to compile.

A probe reads one file. A compiler finds the same after minutes. Builder (on packages of a mirror) and node
(on the headers at hand) ask the same question.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from driverforge_core import debversion
from driverforge_core.driverversion import DriverVersion
from driverforge_core.kernel import KernelRelease

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderProbe:
    """A kernel change that some drivers do not compile with.

    `kind` is 'arguments', 'missing-macro' or 'missing-member'.
    """

    kind: str
    symbol: str
    header: str
    """Below the kernel's source folder: 'include/linux/pci.h'."""
    struct: str = ""
    """For 'missing-member'."""
    arguments: int | None = None
    """For 'arguments': the number that breaks the build."""

    def breaks(self, text: str) -> str | None:
        """The evidence that a header with this text breaks the build, as 'FILE:LINE: what is there'.

        None where it does not.
        """
        code = COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
        if self.kind == "arguments":
            return self._declared_with(code)
        if self.kind == "missing-macro":
            defined = re.search(rf"^\s*#\s*define\s+{re.escape(self.symbol)}\b", code, re.MULTILINE)
            return None if defined or _declares(code, self.symbol) else f"{self.header}: no {self.symbol}"
        return self._member_missing(code)

    def _declared_with(self, code: str) -> str | None:
        for found in re.finditer(rf"\b{re.escape(self.symbol)}\s*\((?P<parameters>[^;{{]*?)\)\s*[;{{]", code):
            if count_parameters(found["parameters"]) == self.arguments:
                line = code.count("\n", 0, found.start()) + 1
                return f"{self.header}:{line}: {' '.join(found[0].rstrip('{; ').split())}"
        return None

    def _member_missing(self, code: str) -> str | None:
        opening = re.search(rf"\bstruct\s+{re.escape(self.struct)}\s*\{{", code)
        if opening is None:
            return None
        body = code[opening.end() : _closing(code, opening.end())]
        return (
            None
            if re.search(rf"\b{re.escape(self.symbol)}\b", body)
            else f"{self.header}: struct {self.struct} has no {self.symbol}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRule:
    """A probe and whom it concerns: a row of `probes:` in matrix.yaml."""

    id: str
    probe: HeaderProbe
    drivers: tuple[tuple[int, str, str], ...]
    """Branch; its first version that is not concerned any more, or ''; the first version of a distribution's
    package of the source from which on a patch of theirs is in it ('550.163.01-5' of Debian), or ''.
    """
    module_types: tuple[str, ...]
    since: tuple[int, ...] = ()
    """Kernels of an older series are not concerned."""
    reason: str

    def concerns(self, driver: DriverVersion, module_types: Collection[str], kernel: KernelRelease) -> bool:
        """Whether the source of a driver as NVIDIA published it is concerned, of some module type."""
        return kernel.version >= self.since and any(
            kind in self.module_types and self._reaches(driver) for kind in module_types
        )

    def patched(self, driver: DriverVersion, package: str) -> bool:
        """Whether a distribution's package of a driver's source has a patch, by its version (550.163.01-5.1).

        A package of another upstream version than the patch was made for says nothing.
        """
        return any(
            package.rpartition("-")[0] == first.rpartition("-")[0] and debversion.compare(package, first) >= 0
            for branch, _, first in self.drivers
            if first and branch == driver.branch
        )

    def _reaches(self, driver: DriverVersion) -> bool:
        return any(
            driver.branch == branch and (not before or driver < DriverVersion(before))
            for branch, before, _ in self.drivers
        )


def count_parameters(text: str) -> int:
    """Parameters in a C declaration's parentheses; commas inside nested parentheses do not count."""
    depth, count = 0, 1
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        count += character == "," and depth == 0
    return 0 if text.strip() in ("", "void") else count


def _declares(code: str, symbol: str) -> bool:
    return re.search(rf"\b{re.escape(symbol)}\s*\(", code) is not None


def _closing(code: str, start: int) -> int:
    """Index of the brace that closes the one before `start`."""
    depth = 1
    for index in range(start, len(code)):
        depth += {"{": 1, "}": -1}.get(code[index], 0)
        if depth == 0:
            return index
    return len(code)
