"""The rows of matrix.yaml as values.

Every field's description is what an editor shows and what docs/matrix.md prints.

The file is data with a closed set of keys: lists of rows, each with an `id`. `load.py` turns a file into
these rows; nothing here reads anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from driverforge_build.matrix.fields import (
    Arch,
    ArchPackages,
    Archs,
    BranchNumber,
    DottedNumber,
    Download,
    Family,
    Flag,
    Glob,
    Globs,
    ImageRef,
    ModuleType,
    ModuleTypes,
    Month,
    OsKey,
    PackageManager,
    PackageName,
    PayloadKind,
    PciRange,
    PlainPath,
    PlainPathOrNone,
    ProbeKind,
    RepositoryId,
    RepositoryIds,
    RowId,
    RowIds,
    Sha256,
    SomePackageNames,
    Text,
    Url,
    Variants,
    Version,
    filled,
    on_arch,
    unique,
)
from driverforge_build.matrix.globs import glob_set
from driverforge_core.arch import to_machine


class Row(BaseModel):
    """What all rows are: frozen, with no key but the ones named."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


_R = TypeVar("_R", bound=Row)


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
    newest: Version = Field(description="Newest version that this catalogue knows.")
    archs: Archs = Field(description="CPU architectures that the branch is published for.")
    module_types: ModuleTypes = Field(description="Kernel module types that the branch has.")
    payloads: Annotated[tuple[PayloadKind, ...], Field(min_length=1), AfterValidator(unique)] = Field(
        description="Where the branch can be had from."
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


class Repository(Row):
    """A repository of a distribution.

    Its mirror's address is what the base image's own configuration says.
    """

    id: RepositoryId = Field(
        description="apt: the suite; dnf and zypper: the repository's id, {machine} is x86_64 or aarch64."
    )
    archive: str = Field(
        default="",
        description="apt: last path element of the archive that holds the suite, e.g. debian-security.",
    )
    components: tuple[RowId, ...] = Field(default=(), description="apt: components to read.")
    path: PlainPathOrNone = Field(
        default="",
        description="dnf and zypper: folder of the repository below the mirror's address; {machine} as in "
        "`id`. Empty: its id.",
    )
    role: Literal["main", "updates", "security", "backports", "extra"] = Field(default="main")
    optional: Flag = Field(
        default=False, description="true: not enabled in the base image, only read for kernels and drivers."
    )


class KernelSeries(Row):
    """One series of kernels that an OS offers."""

    id: RowId = Field(description="Name of the series, e.g. 6.1.")
    releases: Glob = Field(description="Glob over kernel releases (uname -r) that belong to it.")
    flavours: dict[Arch, tuple[RowId, ...]] = Field(
        description="Flavours that images are made for, an architecture a key."
    )
    repositories: RepositoryIds = Field(
        description="Repositories that offer it (ids of the row's `repositories`)."
    )
    compilers: SomePackageNames = Field(
        description="Packages of the compilers that built kernels of the series: JIT images have them all. "
        "Which one a kernel wants its headers say; where they do not, it is the first."
    )
    headers: SomePackageNames = Field(
        description="Packages with the headers; {release} is uname -r, {plain} the same without its +variant."
    )
    image: SomePackageNames = Field(
        description="Packages, in order of preference, with the kernel itself; as in `headers`."
    )

    def header_packages(self, release: str) -> tuple[str, ...]:
        """Names of the header packages of a kernel release."""
        return filled(self.headers, release=release, plain=release.partition("+")[0])

    def image_packages(self, release: str) -> tuple[str, ...]:
        """Names of the packages that may hold a kernel release, the preferred one first."""
        return filled(self.image, release=release, plain=release.partition("+")[0])


class Python(Row):
    """The interpreter that driverctl runs on inside the image."""

    package: PackageName
    executable: PlainPath
    version: DottedNumber


class Tools(Row):
    """Packages beside the driver's own."""

    runtime: ArchPackages = Field(default=(), description="In every image.")
    jit: ArchPackages = Field(
        default=(), description="In JIT images, beside the kernel's compiler: what a build of modules calls."
    )


class ModuleSource(Row):
    """Where the kernel modules of one type come from."""

    id: ModuleType = Field(description="open or proprietary.")
    packages: ArchPackages = Field(
        description="Packages; {release}, {branch} and {version} are replaced. Finished modules of a kernel "
        "are taken in one version."
    )
    tree: PlainPathOrNone = Field(
        default="",
        description="Folder with the source inside the package; empty: the packages hold finished modules.",
    )


class Firmware(Row):
    """Where the GSP firmware comes from."""

    package: PackageName
    tree: PlainPath = Field(description="Folder with the *.bin files inside the package.")


class DriverRow(Row):
    """A driver on an OS: which version, from where, with which module types."""

    id: RowId = Field(description="Name within the OS; by custom the branch.")
    branch: BranchNumber
    version: Version = Field(
        description="Full version, e.g. 550.163.01; two rows of an OS may share one only on different "
        "`archs`."
    )
    payload: PayloadKind
    variants: Variants = Field(default=("jit", "precompiled"), description="Which images are made.")
    module_types: ModuleTypes
    archs: Archs | None = Field(default=None, description="Absent: all of the OS that the branch has.")
    kernels: Globs = Field(default=("*",), description="Globs over the ids of the OS's `kernels`.")
    vendor_modules: Flag = Field(
        default=False,
        description="true: the distribution ships finished, signed modules; nothing is compiled.",
    )
    repositories: RepositoryIds = Field(
        default=(), description="Repositories that hold the driver's packages, first one first."
    )
    modules: tuple[ModuleSource, ...] = Field(
        default=(), description="Sources of the kernel modules (payload packages)."
    )
    firmware: Firmware | None = Field(default=None)
    userspace: ArchPackages = Field(
        default=(), description="Packages of the user space; each must have exactly the driver's version."
    )
    companions: ArchPackages = Field(
        default=(),
        description="Packages that are versioned on their own; any version of the repositories does.",
    )
    url: Download | None = Field(
        default=None,
        description="Address (http or https) of the runfile or image; {version}, {branch} and {machine} are "
        "replaced.",
    )
    sha256: dict[Arch, Sha256] = Field(
        default_factory=dict,
        description="Pins of the archive that you know; `driverforge lock` finds those of the others "
        "(docs/lock.md).",
    )
    image: ImageRef | None = Field(
        default=None, description="The driver image that payload `image` takes as base."
    )

    def filled(self, texts: Iterable[str], *, release: str = "{release}") -> tuple[str, ...]:
        """Package names or folders of this row with {branch}, {version} and {release} replaced."""
        return filled(texts, branch=self.branch, version=self.version, release=release)

    def runfile_url(self, machine: str) -> str:
        """Address of the runfile for 'x86_64' or 'aarch64'; '' where the payload is another."""
        return filled((self.url or "",), branch=self.branch, version=self.version, machine=machine)[0]

    def takes(self, line_id: str) -> bool:
        """Whether images are made for kernels of a series (an id of the OS's `kernels`)."""
        return glob_set(self.kernels)(line_id)


class OsRow(Row):
    """An operating system that nodes run, and how images for it are made."""

    id: OsKey = Field(
        description="ID and VERSION_ID of /etc/os-release together, e.g. debian12, ubuntu22.04, rhel9, "
        "sles15.7."
    )
    name: Text = Field(description="For people.")
    family: Family
    package_manager: PackageManager
    codename: str = Field(default="")
    archs: Archs
    base: ImageRef = Field(description="Base image; a site overrides it here or with --base.")
    mirror: Url | None = Field(
        default=None, description="Mirror for discovery and builds; absent: what the base image says."
    )
    keyring: str = Field(default="", description="Package-signing keys inside the base image.")
    python: Python
    repositories: Annotated[tuple[Repository, ...], Field(min_length=1)]
    kernels: Annotated[tuple[KernelSeries, ...], Field(min_length=1)]
    tools: Tools = Field(default_factory=Tools)
    drivers: Annotated[tuple[DriverRow, ...], Field(min_length=1)]

    def driver(self, driver_id: str) -> DriverRow | None:
        return next((row for row in self.drivers if row.id == driver_id), None)

    def on(self, arch: Arch) -> OsRow:
        """The row as one architecture sees it: its packages alone, and its repositories' ids filled in."""

        def ids(names: Iterable[str]) -> tuple[str, ...]:
            return filled(names, machine=to_machine(arch))

        def changed(row: _R, **update: object) -> _R:
            return row.model_copy(update=update)

        return changed(
            self,
            repositories=tuple(
                changed(one, id=ids([one.id])[0], path=ids([one.path])[0]) for one in self.repositories
            ),
            kernels=tuple(changed(one, repositories=ids(one.repositories)) for one in self.kernels),
            tools=Tools(runtime=on_arch(self.tools.runtime, arch), jit=on_arch(self.tools.jit, arch)),
            drivers=tuple(
                changed(
                    one,
                    repositories=ids(one.repositories),
                    modules=tuple(
                        changed(source, packages=on_arch(source.packages, arch)) for source in one.modules
                    ),
                    userspace=on_arch(one.userspace, arch),
                    companions=on_arch(one.companions, arch),
                )
                for one in self.drivers
            ),
        )


class Toolkit(Row):
    """A release of NVIDIA's container toolkit.

    Its image is the same for every node; NVIDIA's files are given to the build.
    """

    id: DottedNumber = Field(description="Version of NVIDIA's programs, e.g. 1.20.1.")
    system: OsKey = Field(
        description="Operating system inside the image (an id of `systems`); its Python is 3.11 or newer."
    )
    archs: Archs
    sha256: dict[Arch, Sha256] = Field(
        default_factory=dict,
        description="Pins of the folders with NVIDIA's files; `driverforge generate` says what to write.",
    )


class Keep(Row):
    """Which rows of the built-in catalogue a site keeps, as globs over their ids."""

    systems: Globs = ("*",)
    branches: Globs = Field(default=("*",), description="Drivers of other branches are left out of every OS.")


class Section(Enum):
    """The lists of a matrix file; the value is the key in the file."""

    BRANCHES = "branches"
    GPUS = "gpus"
    NVSWITCHES = "nvswitches"
    SYSTEMS = "systems"
    EXCLUSIONS = "exclusions"
    PROBES = "probes"
    TOOLKITS = "toolkits"


MODELS: dict[Section, type[Row]] = {
    Section.BRANCHES: Branch,
    Section.GPUS: GpuArchitecture,
    Section.NVSWITCHES: NvSwitch,
    Section.SYSTEMS: OsRow,
    Section.EXCLUSIONS: Exclusion,
    Section.PROBES: Probe,
    Section.TOOLKITS: Toolkit,
}
