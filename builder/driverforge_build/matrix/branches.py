"""Rows about NVIDIA's drivers and GPUs, whatever the operating system."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from driverforge_build.matrix.fields import (
    Archs,
    BranchNumber,
    DebianVersion,
    DottedNumber,
    Globs,
    ModuleTypes,
    Month,
    PayloadKind,
    PciRange,
    PlainPath,
    ProbeKind,
    Row,
    RowId,
    RowIds,
    Text,
    Version,
    unique,
)


class Eol(Row):
    """When NVIDIA stops fixing a branch.

    A date changes with the page that names it, so the source goes along.
    """

    date: Month | None = Field(
        default=None, description="Month of the end of life, YYYY-MM; absent: the branch has ended."
    )
    source: Text = Field(description="The page and its date.")

    def __str__(self) -> str:
        return f"{self.date or 'no month is known'} ({self.source})"


class OsRange(Row):
    """A distribution on which a branch is offered, by its version."""

    id: RowId = Field(description="ID of /etc/os-release.")
    oldest: DottedNumber | None = Field(default=None, description="Oldest VERSION_ID; absent: no limit.")
    newest: DottedNumber | None = Field(default=None, description="Newest VERSION_ID; absent: no limit.")


class Branch(Row):
    """A driver branch and what it supports."""

    id: BranchNumber = Field(description="Number of the branch, e.g. 550.")
    designation: Text = Field(
        description="NVIDIA's name for its kind: LTSB, Production Branch, New Feature Branch, legacy."
    )
    newest: Version | None = Field(
        default=None, description="Newest version that this catalogue knows; absent: none yet."
    )
    archs: Archs = Field(description="CPU architectures that the branch is published for.")
    module_types: ModuleTypes = Field(description="Kernel module types that the branch has.")
    payloads: Annotated[tuple[PayloadKind, ...], Field(min_length=1), AfterValidator(unique)] = Field(
        description="Where the branch can be had from; `image` needs no mention, an image may hold any."
    )
    gpus: RowIds = Field(description="GPU architectures that the branch drives (ids of `gpus`).")
    systems: tuple[OsRange, ...] = Field(
        description="Distributions and versions that the branch is offered for."
    )
    cuda: Text = Field(description="Newest CUDA major version whose programs run on it.")
    eol: Eol | None = Field(
        default=None, description="End of life with its source; a warning in plans, never a verdict."
    )
    note: str = Field(default="", description="What else a reader should know.")

    def ended(self, month: str) -> bool:
        """Whether the branch is past its end of life in a month, YYYY-MM."""
        return self.eol is not None and (self.eol.date is None or self.eol.date < month)


class GpuArchitecture(Row):
    """A GPU architecture: which module types drive it and how a node knows it."""

    id: RowId = Field(description="Lower-case name, e.g. ampere.")
    module_types: ModuleTypes = Field(description="Module types that drive it, the recommended one first.")
    devices: Annotated[tuple[PciRange, ...], Field(min_length=1)] = Field(
        description="Ranges of PCI device ids of vendor 10de."
    )


class NvSwitch(Row):
    """An NVSwitch: a node with one needs the fabric manager."""

    id: RowId
    devices: Annotated[tuple[PciRange, ...], Field(min_length=1)]


class ProbeTarget(Row):
    """Drivers that a probe concerns."""

    branch: BranchNumber
    before: Version | None = Field(
        default=None, description="First version of the branch that is not concerned any more."
    )
    patched: DebianVersion | None = Field(
        default=None,
        description="First version of Debian's package of the source with a patch for it, e.g. 550.163.01-5: "
        "packages of the same driver version are not concerned from there on.",
    )


class Probe(Row):
    """A kernel change that some drivers do not compile with, seen in the headers in milliseconds."""

    id: RowId
    kind: ProbeKind = Field(
        description="What breaks the build: `arguments`, the function is declared with that many; "
        "`missing-macro`; `missing-member`."
    )
    symbol: Text = Field(description="Function, macro or structure member.")
    header: PlainPath = Field(description="Header that declares it, below the kernel's source folder.")
    struct: str = Field(default="", description="The structure, for `missing-member`.")
    arguments: Annotated[int, Field(ge=0, le=20)] | None = Field(
        default=None, description="Number of parameters that breaks the build."
    )
    since: DottedNumber | None = Field(default=None, description="Kernels older than this are not concerned.")
    module_types: ModuleTypes = Field(description="Module types whose source uses the symbol.")
    drivers: Annotated[tuple[ProbeTarget, ...], Field(min_length=1)] = Field(description="Drivers concerned.")
    reason: Text = Field(description="One sentence for the plan.")
    evidence: Annotated[tuple[Text, ...], Field(min_length=1)] = Field(description="Where this was seen.")


class Exclusion(Row):
    """Cells that are not to be built, and why. Every condition that is given must hold."""

    id: RowId
    systems: Globs = Field(default=("*",), description="Globs over OS ids.")
    archs: Archs = Field(default=("amd64", "arm64"))
    branches: Globs = Field(default=("*",), description="Globs over branch numbers.")
    flavours: Globs = Field(
        default=(), description="Globs over kernel flavours; given: JIT cells are not concerned."
    )
    kernels: Globs = Field(
        default=(), description="Globs over kernel releases; given: JIT cells are not concerned."
    )
    module_types: ModuleTypes = Field(
        default=("open", "proprietary"), description="Types that go; the cell stays while one is left."
    )
    reason: Text = Field(description="One sentence for the plan.")
    source: Text = Field(description="Where this is known from.")
