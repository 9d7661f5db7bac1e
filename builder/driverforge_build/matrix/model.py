"""The rows of matrix.yaml as values. Every field's description is what an editor shows and what docs/matrix.md prints.

The file is data with a closed set of keys: lists of rows, each with an `id`. `load.py` turns a file into these rows;
nothing here reads anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from driverforge_build.matrix.globs import glob_set

Arch = Literal["amd64", "arm64"]
ModuleType = Literal["open", "proprietary"]
PayloadKind = Literal["packages", "runfile", "image"]
Variant = Literal["jit", "precompiled"]
Family = Literal["debian", "rhel", "suse"]
PackageManager = Literal["apt", "dnf", "zypper"]
ProbeKind = Literal["arguments", "missing-macro", "missing-member"]

_T = TypeVar("_T")


def _rule(pattern: str, advice: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"{text!r} {advice}" if text else f"the value is empty; it {advice}")
        return text

    return AfterValidator(check)


def _unique(values: tuple[_T, ...]) -> tuple[_T, ...]:
    seen: list[_T] = []
    for value in values:
        if value in seen:
            raise ValueError(f"{value!r} is listed twice; keep one")
        seen.append(value)
    return values


def _range(text: str) -> str:
    first, dash, last = text.partition("-")
    if dash and int(first, 16) > int(last, 16):
        raise ValueError(f"{text!r} runs backwards; write {last}-{first}")
    return text


def _month(text: str) -> str:
    if not 1 <= int(text[5:]) <= 12:
        raise ValueError(f"{text!r} has no month {text[5:]}; write YYYY-MM")
    return text


def _flag(value: object) -> object:
    if value not in ("true", "false", True, False):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


_PATH, _NO_PATH = r"/?[A-Za-z0-9._+{}/-]+", "is not a path; write it without spaces"
Flag = Annotated[bool, BeforeValidator(_flag)]
Text = Annotated[
    str, _rule(r"[^\x00-\x1f\x7f]+", "must be one line of text; write something here or remove the key")
]
RowId = Annotated[
    str,
    _rule(
        r"[a-z0-9][a-z0-9._+-]*", "is not an id; write lower-case letters, digits and . _ + -, e.g. debian12"
    ),
]
OsKey = Annotated[
    str,
    _rule(
        r"[a-z]+[0-9]+(\.[0-9]+)?",
        "is not an OS id; write ID and VERSION_ID of its /etc/os-release together, e.g. debian12",
    ),
]
Package = Annotated[
    str,
    _rule(
        r"[A-Za-z0-9@{][A-Za-z0-9@.+_{}:-]*",
        "is not a package name; write one name, with {release}, {branch} or {version} where they vary",
    ),
]
Version = Annotated[
    str, _rule(r"[0-9]+(\.[0-9]+){1,2}", "is not a driver version; write it as NVIDIA does, e.g. 550.90.07")
]
Series = Annotated[str, _rule(r"[0-9]+(\.[0-9]+)*", "is not a version; write numbers and dots, e.g. 6.12")]
Sha256 = Annotated[str, _rule(r"[0-9a-f]{64}", "is not a sha256; write its 64 lower-case hexadecimal digits")]
Url = Annotated[str, _rule(r"(https?|file)://[^\s]+", "is not a URL; write https://HOST/PATH")]
Download = Annotated[
    str,
    _rule(
        r"https?://[^\s\"'$\\<>`]+",
        "is not an address to download from; write https://HOST/PATH, quotes and $ in it as %22, %27 and %24",
    ),
]
ImageRef = Annotated[
    str,
    _rule(
        r"[a-z0-9]+([._:-][a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@sha256:[0-9a-f]{64})?",
        "is not an image reference; write [HOST/]NAME:TAG or NAME@sha256:DIGEST",
    ),
]
Path = Annotated[str, _rule(_PATH, _NO_PATH)]
PathOrNone = Annotated[str, _rule(f"({_PATH})?", _NO_PATH)]
PciRange = Annotated[
    str,
    _rule(
        r"[0-9a-f]{4}(-[0-9a-f]{4})?",
        "is not a range of PCI device ids; write four hexadecimal digits or two of them, e.g. 2080-20ff",
    ),
    AfterValidator(_range),
]
Month = Annotated[str, _rule(r"[0-9]{4}-[0-9]{2}", "is not a month; write YYYY-MM"), AfterValidator(_month)]
_BRANCH = r"[1-9][0-9]{2}"
BranchNumber = Annotated[str, _rule(_BRANCH, "is not a driver branch; write its number, e.g. 550")]
Glob = Annotated[
    str,
    _rule(
        r"[A-Za-z0-9._+*?\[\]{},-]+",
        "is not a glob; write letters, digits, '.', '-', '*', '?', '[...]', '{a,b}'",
    ),
]

Archs = Annotated[tuple[Arch, ...], Field(min_length=1), AfterValidator(_unique)]
ModuleTypes = Annotated[tuple[ModuleType, ...], Field(min_length=1), AfterValidator(_unique)]
Variants = Annotated[tuple[Variant, ...], Field(min_length=1), AfterValidator(_unique)]
Packages = Annotated[tuple[Package, ...], AfterValidator(_unique)]
SomePackages = Annotated[tuple[Package, ...], Field(min_length=1), AfterValidator(_unique)]
RowIds = Annotated[tuple[RowId, ...], AfterValidator(_unique)]
Globs = tuple[Glob, ...]


def is_branch(text: str) -> bool:
    """Whether a text is the number of a branch by its form."""
    return re.fullmatch(_BRANCH, text) is not None


def filled(texts: Iterable[str], **values: str) -> tuple[str, ...]:
    """The texts with {release}, {version} and the like replaced."""
    found = []
    for text in texts:
        done = text
        for name, value in values.items():
            done = done.replace(f"{{{name}}}", value)
        found.append(done)
    return tuple(found)


class Row(BaseModel):
    """What all rows are: frozen, with no key but the ones named."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Eol(Row):
    """When NVIDIA stops fixing a branch. A date changes with the page that names it, so the source goes along."""

    date: Month | None = Field(
        default=None, description="Month of the end of life, YYYY-MM; absent: the branch has ended."
    )
    source: Text = Field(description="The page and its date.")

    def __str__(self) -> str:
        return f"{self.date or 'no month is known'} ({self.source})"


class OsRange(Row):
    """A distribution on which a branch is offered, by its version."""

    id: RowId = Field(description="ID of /etc/os-release.")
    oldest: Series | None = Field(default=None, description="Oldest VERSION_ID; absent: no limit.")
    newest: Series | None = Field(default=None, description="Newest VERSION_ID; absent: no limit.")


class Branch(Row):
    """A driver branch and what it supports."""

    id: BranchNumber = Field(description="Number of the branch, e.g. 550.")
    designation: Text = Field(
        description="NVIDIA's name for its kind: LTSB, Production Branch, New Feature Branch, legacy."
    )
    newest: Version = Field(description="Newest version that this catalogue knows.")
    archs: Archs = Field(description="CPU architectures that the branch is published for.")
    module_types: ModuleTypes = Field(description="Kernel module types that the branch has.")
    payloads: Annotated[tuple[PayloadKind, ...], Field(min_length=1), AfterValidator(_unique)] = Field(
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


class Gpu(Row):
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
        description="What breaks the build: `arguments`, the function is declared with that many; `missing-macro`; `missing-member`."
    )
    symbol: Text = Field(description="Function, macro or structure member.")
    header: Path = Field(description="Header that declares it, below the kernel's source folder.")
    struct: str = Field(default="", description="The structure, for `missing-member`.")
    arguments: Annotated[int, Field(ge=0, le=20)] | None = Field(
        default=None, description="Number of parameters that breaks the build."
    )
    since: Series | None = Field(default=None, description="Kernels older than this are not concerned.")
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
    """A repository of a distribution. Its mirror's address is what the base image's own configuration says."""

    id: RowId = Field(description="apt: the suite; dnf and zypper: the repository's id.")
    archive: str = Field(
        default="",
        description="apt: last path element of the archive that holds the suite, e.g. debian-security.",
    )
    components: tuple[RowId, ...] = Field(default=(), description="apt: components to read.")
    role: Literal["main", "updates", "security", "backports", "extra"] = Field(default="main")
    optional: Flag = Field(
        default=False, description="true: not enabled in the base image, only read for kernels and drivers."
    )


class KernelLine(Row):
    """One series of kernels that an OS offers."""

    id: RowId = Field(description="Name of the series, e.g. 6.1.")
    releases: Glob = Field(description="Glob over kernel releases (uname -r) that belong to it.")
    flavours: dict[Arch, tuple[RowId, ...]] = Field(
        description="Flavours that images are made for, an architecture a key."
    )
    repositories: RowIds = Field(description="Repositories that offer it (ids of the row's `repositories`).")
    compiler: Package = Field(
        description="Package of the compiler that built it; modules are compiled with the same."
    )
    headers: SomePackages = Field(
        description="Packages with the headers; {release} is uname -r, {plain} the same without its +variant."
    )
    image: SomePackages = Field(
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

    package: Package
    executable: Path
    version: Series


class Tools(Row):
    """Packages beside the driver's own."""

    runtime: Packages = Field(default=(), description="In every image.")
    jit: Packages = Field(
        default=(), description="In JIT images, beside the kernel's compiler: what a build of modules calls."
    )


class ModuleSource(Row):
    """Where the kernel modules of one type come from."""

    id: ModuleType = Field(description="open or proprietary.")
    packages: Packages = Field(description="Packages; {release}, {branch} and {version} are replaced.")
    tree: PathOrNone = Field(
        default="",
        description="Folder with the source inside the package; empty: the packages hold finished modules.",
    )


class Firmware(Row):
    """Where the GSP firmware comes from."""

    package: Package
    tree: Path = Field(description="Folder with the *.bin files inside the package.")


class DriverRow(Row):
    """A driver on an OS: which version, from where, with which module types."""

    id: RowId = Field(description="Name within the OS; by custom the branch.")
    branch: BranchNumber
    version: Version = Field(
        description="Full version, e.g. 550.163.01; two rows of an OS may share one only on different `archs`."
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
    repositories: RowIds = Field(
        default=(), description="Repositories that hold the driver's packages, first one first."
    )
    modules: tuple[ModuleSource, ...] = Field(
        default=(), description="Sources of the kernel modules (payload packages)."
    )
    firmware: Firmware | None = Field(default=None)
    userspace: Packages = Field(
        default=(), description="Packages of the user space; each must have exactly the driver's version."
    )
    companions: Packages = Field(
        default=(),
        description="Packages that are versioned on their own; any version of the repositories does.",
    )
    url: Download | None = Field(
        default=None,
        description="Address (http or https) of the runfile or image; {version}, {branch} and {machine} are replaced.",
    )
    sha256: dict[Arch, Sha256] = Field(
        default_factory=dict,
        description="Pins of the runfile; without one the cell is `unknown`, and the plan says how to get it.",
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
        description="ID and VERSION_ID of /etc/os-release together, e.g. debian12, ubuntu22.04, rhel9, sles15.7."
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
    kernels: Annotated[tuple[KernelLine, ...], Field(min_length=1)]
    tools: Tools = Field(default_factory=Tools)
    drivers: Annotated[tuple[DriverRow, ...], Field(min_length=1)]

    def driver(self, driver_id: str) -> DriverRow | None:
        return next((row for row in self.drivers if row.id == driver_id), None)


class Toolkit(Row):
    """A release of NVIDIA's container toolkit. Its image is the same for every node; NVIDIA's files are given to the build."""

    id: Series = Field(description="Version of NVIDIA's programs, e.g. 1.20.1.")
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
    Section.GPUS: Gpu,
    Section.NVSWITCHES: NvSwitch,
    Section.SYSTEMS: OsRow,
    Section.EXCLUSIONS: Exclusion,
    Section.PROBES: Probe,
    Section.TOOLKITS: Toolkit,
}
