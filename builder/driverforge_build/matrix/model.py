"""The rows of matrix.yaml as values; those of no operating system are in `nvidia`.

Every field's description is what an editor shows and what docs/matrix.md prints.

The file is data with a closed set of keys: lists of rows, each with an `id`. `load.py` turns a file into
these rows; nothing here reads anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from typing import Annotated, TypeVar

from pydantic import Field

from driverforge_build.matrix.branches import Branch, Exclusion, GpuArchitecture, NvSwitch, Probe
from driverforge_build.matrix.fields import (
    Arch,
    ArchPackages,
    Archs,
    BranchNumber,
    DottedNumber,
    Download,
    DriverImageRef,
    Family,
    Flag,
    Glob,
    Globs,
    ImageRef,
    ModuleType,
    ModuleTypes,
    OsKey,
    PackageManager,
    PackageName,
    PackageNames,
    PayloadKind,
    PlainPath,
    PlainPathOrNone,
    RepositoryIds,
    Row,
    RowId,
    Sha256,
    SomePackageNames,
    Text,
    Url,
    Variants,
    Version,
    filled,
    kernel_names,
    on_arch,
)
from driverforge_build.matrix.globs import glob_set
from driverforge_build.matrix.repository import Repository
from driverforge_core.arch import to_machine
from driverforge_core.kernel import KernelRelease

_R = TypeVar("_R", bound=Row)


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
        description="Packages, in order of preference, with the kernel itself (not what only depends on it); "
        "as in `headers`."
    )

    modules: PackageNames = Field(
        default=(),
        description="Packages with modules that NVIDIA's need (drm, ipmi), where that of the image has not "
        "all; as in `headers`. Those that a kernel has are locked, and `verify` boots with them.",
    )

    newest: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="How many kernels of each flavour are locked, the newest ones, an architecture for "
        "itself; absent: all that are published.",
    )

    def header_packages(self, release: str) -> tuple[str, ...]:
        """Names of the header packages of a kernel release."""
        return filled(self.headers, release=release, plain=release.partition("+")[0])

    def image_packages(self, release: str) -> tuple[str, ...]:
        """Names of the packages that may hold a kernel release, the preferred one first."""
        return filled(self.image, release=release, plain=release.partition("+")[0])

    def module_packages(self, release: str) -> tuple[str, ...]:
        """Names of the packages with more modules of a kernel release."""
        return filled(self.modules, release=release, plain=release.partition("+")[0])


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
        description="Packages; {branch} and {version} are replaced, and for finished modules what names a "
        "kernel: {release}, {kernel_version} (the same without distribution and machine, 6.12.0-211.51.1), "
        "{variant-} (`64k-`, or nothing). Finished modules of a kernel are taken in one version."
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
    payload: PayloadKind = Field(
        description="Where it comes from: packages, NVIDIA's archive, or a driver image that is the base."
    )
    variants: Variants = Field(default=("jit", "precompiled"), description="Which images are made.")
    module_types: ModuleTypes
    archs: Archs | None = Field(default=None, description="Absent: all of the OS that the branch has.")
    kernels: Globs = Field(default=("*",), description="Globs over the ids of the OS's `kernels`.")
    vendor_modules: Flag = Field(
        default=False,
        description="true: the distribution ships finished, signed modules; nothing is compiled. With "
        "payload runfile the modules alone are its own, in the archive's version.",
    )
    repositories: RepositoryIds = Field(
        default=(), description="Repositories that hold the driver's packages, first one first."
    )
    modules: tuple[ModuleSource, ...] = Field(
        default=(), description="Where the kernel modules come from (payload packages, `vendor_modules`)."
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
        description="Address (http or https) of the runfile; {version}, {branch} and {machine} are replaced.",
    )
    sha256: dict[Arch, Sha256] = Field(
        default_factory=dict,
        description="Pins of the archive that you know; `driverforge lock` finds those of the others "
        "(docs/lock.md).",
    )
    image: DriverImageRef | None = Field(
        default=None,
        description="The driver image that payload `image` takes as base, in place of the OS's; {version}, "
        "{branch} and {os} (the id of the OS) are replaced.",
    )

    def filled(self, texts: Iterable[str], *, kernel: KernelRelease | None = None) -> tuple[str, ...]:
        """Package names or folders of this row with {branch} and {version} replaced, and a kernel's names."""
        names = kernel_names(kernel) if kernel else {}
        return filled(texts, branch=self.branch, version=self.version, **names)

    def runfile_url(self, machine: str) -> str:
        """Address of the runfile for 'x86_64' or 'aarch64'; '' where the payload is another."""
        url = self.url if self.payload == "runfile" else None
        return filled((url or "",), branch=self.branch, version=self.version, machine=machine)[0]

    def image_for(self, os_key: str) -> str:
        """The driver image for an OS; '' where the payload is another."""
        image = self.image if self.payload == "image" else None
        return filled((image or "",), branch=self.branch, version=self.version, os=os_key)[0]

    def takes(self, line_id: str) -> bool:
        """Whether images are made for kernels of a series (an id of the OS's `kernels`)."""
        return glob_set(self.kernels)(line_id)


class Fabric(Row):
    """What nodes with NVSwitches, or in an NVLink domain, run beside the driver: in no archive of NVIDIA's.

    Images have it where the lock has it, in the user space; the others serve all other nodes.
    """

    id: BranchNumber = Field(description="Drivers of this branch and newer have it, up to the next row's.")
    packages: ArchPackages = Field(description="Packages; each must have exactly the driver's version.")
    companions: ArchPackages = Field(
        default=(),
        description="Packages with versions of their own: the newest of the branch, else the newest.",
    )


class OsRow(Row):
    """An operating system that nodes run, and how images for it are made."""

    id: OsKey = Field(
        description="ID and VERSION_ID of /etc/os-release together, e.g. debian12, ubuntu22.04, rhel9, "
        "sles15.7, sl-micro6.1."
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
    releasever: Text | None = Field(
        default=None,
        description="What {releasever} is in addresses of its repositories, e.g. 9; 9.6 for nodes that stay "
        "with that minor release.",
    )
    python: Python
    repositories: Annotated[tuple[Repository, ...], Field(min_length=1)]
    kernels: Annotated[tuple[KernelSeries, ...], Field(min_length=1)]
    tools: Tools = Field(default_factory=Tools)
    drivers: Annotated[tuple[DriverRow, ...], Field(min_length=1)]
    fabric: tuple[Fabric, ...] = ()

    def fabric_of(self, driver: DriverRow) -> Fabric | None:
        """What a driver's images have for nodes with NVSwitches; None where no row says."""
        # an image that is a base has its user space, and with it what it has of these
        if driver.payload == "image":
            return None
        known = [one for one in self.fabric if int(one.id) <= int(driver.branch)]
        return max(known, key=lambda one: int(one.id), default=None)

    def driver(self, driver_id: str) -> DriverRow | None:
        return next((row for row in self.drivers if row.id == driver_id), None)

    @property
    def vendors(self) -> frozenset[str]:
        """The ids of the repositories that a vendor of its own signs."""
        return frozenset(one.id for one in self.repositories if one.vendors)

    def without_vendors(self) -> OsRow:
        """The row for a run that asks no vendor."""
        kept = tuple(one for one in self.repositories if not one.vendors)
        return self.model_copy(update={"repositories": kept, "fabric": ()})

    def closed(self, read: Collection[str]) -> tuple[str, ...]:
        """The ids of the repositories that want a subscription, but for those `read`.

        Not of those that are optional, which a subscription need not have.
        """
        wanted = (one.id for one in self.repositories if one.entitled and not one.optional)
        return tuple(name for name in wanted if name not in read)

    def on(self, arch: Arch) -> OsRow:
        """The row as one architecture sees it: its packages alone, and its repositories' ids filled in."""

        def ids(names: Iterable[str]) -> tuple[str, ...]:
            return filled(names, machine=to_machine(arch))

        def changed(row: _R, **update: object) -> _R:
            return row.model_copy(update=update)

        return changed(
            self,
            repositories=tuple(one.on(arch) for one in self.repositories),
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
            fabric=tuple(
                changed(one, packages=on_arch(one.packages, arch), companions=on_arch(one.companions, arch))
                for one in self.fabric
            ),
        )


class Toolkit(Row):
    """A release of NVIDIA's container toolkit.

    Its image is the same for every node; NVIDIA's files are given to the build.
    """

    id: DottedNumber = Field(description="Version of NVIDIA's programs, e.g. 1.20.2.")
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
