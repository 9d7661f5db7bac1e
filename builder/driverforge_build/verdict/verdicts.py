"""The values: what is to be done about a cell, and where its modules come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from driverforge_build.matrix.expand import Cell
from driverforge_build.matrix.fields import ModuleType
from driverforge_oci.presence import Absent, Presence, Present


class State(Enum):
    BUILD = "build"
    EXISTS = "exists"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


class Source(Enum):
    """Where the modules of a cell come from."""

    VENDOR = "vendor"
    """The distribution's packages: finished and signed."""
    COMPILE = "compile"
    """Compiled when the image is built."""
    NODE = "node"
    """Compiled on the node."""

    def __str__(self) -> str:
        return self.value


def source_of(cell: Cell) -> Source:
    if cell.driver.vendor_modules:
        return Source.VENDOR
    return Source.COMPILE if cell.kernel else Source.NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is to be done about a cell.

    `reason` is one sentence. `evidence` are lines, each with where it is from. `run` is a command for
    `unknown`, '' where none helps. `image` is the tag that a registry was asked for, `digest` what it stands
    for there; `packages` are the vendor's.
    `left_out` are module types that the image goes without, each with why. `unanswered`: the registry could
    not be asked, so that the same run may end differently later.
    """

    state: State
    reason: str
    evidence: tuple[str, ...] = ()
    run: str = ""
    image: str = ""
    digest: str = ""
    packages: tuple[str, ...] = ()
    left_out: Mapping[ModuleType, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    unanswered: bool = False

    def narrowed(self, cell: Cell) -> Cell:
        """The cell with the module types that its image is to have."""
        if not self.left_out:
            return cell
        return replace(
            cell, module_types=tuple(kind for kind in cell.module_types if kind not in self.left_out)
        )


def with_presence(verdict: Verdict, answer: Presence, reference: str) -> Verdict:
    """A verdict `build`, after the registry was asked for the image made from the same inputs."""
    verdict = replace(verdict, image=reference)
    if isinstance(answer, Present):
        return replace(
            verdict,
            state=State.EXISTS,
            reason=f"{reference} was made from the same inputs",
            digest=answer.digest,
        )
    if isinstance(answer, Absent):
        return replace(verdict, evidence=(*verdict.evidence, f"{reference}: the registry does not have it"))
    return replace(
        verdict,
        state=State.UNKNOWN,
        reason=f"the registry does not say whether it has the image: {answer.reason}",
        run=answer.resolution
        or "log in to the registry if it asks for that, then run the same command again",
        unanswered=True,
    )
