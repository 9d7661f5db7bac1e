"""`driverforge.lock.json`: every download of every cell, pinned by pool path and sha256.

It also says where that knowledge comes from.

The file is made by `driverforge lock`, committed beside a site's matrix, and read by `plan`, `generate` and
`build`, which need no repository then. Its bytes are a function of the repositories' content alone: keys
sorted, one package a line. The day of a run is in them where an archive was trusted on that day, and nowhere
else.

    archives.<driver version>-<arch>   NVIDIA's archive: address, sha256, and who says so
    targets.<os>-<arch>.repositories   suites: date and signers of the InRelease, sha256 of each index
    targets.<os>-<arch>.packages       "name=version" -> pool path, sha256, size, suite; named below
    targets.<os>-<arch>.drivers        driver version -> role -> package names (roles: Role)
    targets.<os>-<arch>.kernels        kernel release -> headers, image, its modules, compiler
    targets.<os>-<arch>.header_facts   header package -> question of a probe -> answer, with its line
    targets.<os>-<arch>.header_digests header package -> digests of what it holds; only with --classes
    targets.<os>-<arch>.without_headers   releases whose image is still published and whose headers are not
    targets.<os>-<arch>.base           what the base image's tag stood for; absent where no registry said
    targets.<os>-<arch>.images         driver version -> the same of the driver image that is its base
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

from driverforge_core.headertree import HeaderDigests
from driverforge_core.osid import OsId

Role = Literal["fabric", "firmware", "source", "tools", "toolchain", "userspace"]
"""What a driver's packages are for. `source` and `firmware` are extracted and stand alone. `tools` is whole:
what an image of any kind has, with all dependencies. `userspace`, and `toolchain` (compiler, make, what the
kernel's build programs link), each are whole together with `tools`; `fabric`, what nodes with NVSwitches run,
together with `tools` and `userspace`. Images do without it where the lock has none.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackage:
    """One package file.

    `path` is below the archive that serves `suite` (the security suite has an archive of its own), or below
    the address of the repository of that id. `size` in bytes.
    """

    name: str
    version: str
    arch: str
    path: str
    sha256: str
    size: int
    suite: str

    @property
    def key(self) -> str:
        return f"{self.name}={self.version}"


Roles = Mapping[Role, tuple[LockedPackage, ...]]
"""The packages of a driver, by what they are for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedRepository:
    """One repository: a suite of apt's, or what dnf and zypper know by an id.

    `date` and `valid_until` are UTC, ISO 8601; `signed_by` key fingerprints; digests are hex sha256.
    `inrelease` is that of the InRelease, or of repomd.xml. Where that is signed by nobody (Red Hat's is not),
    TLS brought it, and who made a package only the package's own signature can say: `packages_only`.
    """

    suite: str
    components: tuple[str, ...]
    date: str
    valid_until: str
    signed_by: tuple[str, ...]
    inrelease: str
    indexes: Mapping[str, str]

    @property
    def packages_only(self) -> bool:
        """Whether nothing but the packages is signed."""
        return not self.signed_by

    def signers(self, length: int = 40) -> str:
        """Who vouches for it, in words; `length` is that of a fingerprint's end."""
        if self.packages_only:
            return "not signed itself, only its packages are"
        return f"signed by {', '.join(name[-length:] for name in self.signed_by)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFact:
    """A probe's answer about a header tree.

    `breaks`: whether drivers that the probe concerns fail to compile, None where it cannot say. `found` is
    the evidence, 'include/linux/pci.h:1460: int pci_resize_resource(...)'.
    """

    breaks: bool | None
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedKernel:
    """What a module build for one kernel release downloads, and what `verify` boots.

    `compiler` is the command (gcc-12) that the headers ask for. `image` is None where the repositories have
    headers alone; `modules` are packages beside it with further modules of the kernel. `vendor` maps a driver
    version to the packages with finished modules of NVIDIA's, where the distribution makes them.
    """

    release: str
    flavour: str
    compiler: str
    headers: tuple[LockedPackage, ...]
    image: LockedPackage | None
    vendor: Mapping[str, tuple[LockedPackage, ...]] = field(default_factory=dict)
    modules: tuple[LockedPackage, ...] = ()

    @property
    def abi(self) -> str:
        """What the kernels of all flavours have in their name: '6.1.0-56' of '6.1.0-56-cloud-amd64'."""
        return self.release.removesuffix(f"-{self.flavour}")

    @property
    def packages(self) -> tuple[LockedPackage, ...]:
        """All but a vendor's modules."""
        return (*self.headers, *((self.image,) if self.image else ()), *self.modules)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedBase:
    """What a base image's tag stood for. `reference` is its name as the matrix or --base has it.

    `digest` is that of the image for the target's architecture, `index` that of the index over all of them,
    or the same where there is none.
    """

    reference: str
    digest: str
    index: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLock:
    """All pins of one OS and architecture."""

    os: str
    arch: str
    repositories: tuple[LockedRepository, ...] = ()
    drivers: Mapping[str, Roles] = field(default_factory=dict)
    kernels: Mapping[str, LockedKernel] = field(default_factory=dict)
    header_facts: Mapping[str, Mapping[str, HeaderFact]] = field(default_factory=dict)
    header_digests: Mapping[str, HeaderDigests] = field(default_factory=dict)
    without_headers: tuple[str, ...] = ()
    base: LockedBase | None = None
    images: Mapping[str, LockedBase] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.os}-{self.arch}"

    def facts(self, kernel: LockedKernel) -> dict[str, HeaderFact]:
        """Question to answer, of all header packages of a kernel."""
        return {
            question: fact
            for package in kernel.headers
            for question, fact in self.header_facts.get(package.key, {}).items()
        }

    def digests(self, kernel: LockedKernel) -> HeaderDigests | None:
        """Of all header packages of a kernel together; None where nobody looked into one of them."""
        found = [self.header_digests.get(package.key) for package in kernel.headers]
        known = [one for one in found if one]
        return HeaderDigests.of_all(known) if len(known) == len(found) else None

    @property
    def packages_only(self) -> tuple[str, ...]:
        """The repositories of which nothing but the packages is signed."""
        return tuple(repository.suite for repository in self.repositories if repository.packages_only)

    def suite(self, name: str) -> LockedRepository | None:
        return next((repository for repository in self.repositories if repository.suite == name), None)


class Origin(Enum):
    """Who says that an archive of NVIDIA's has the sha256 that is pinned."""

    MATRIX = "matrix"
    CHECKSUM_FILE = "checksum-file"
    MANIFEST = "manifest"
    FIRST_USE = "first-use"
    FILE = "file"

    @property
    def published(self) -> bool:
        """Whether NVIDIA says so, and can be asked again."""
        return self in (Origin.CHECKSUM_FILE, Origin.MANIFEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedArchive:
    """NVIDIA's archive of one driver for one architecture.

    `url` is NVIDIA's address, or a site's own, never a mirror's. `size` in bytes, 0 where nobody said it.
    `source` is where the sha256 was read. `date` (UTC, ISO 8601) is the day on which a download or a file was
    trusted, '' for what is published. `accepted` is the reason for which another sha256 was given up.
    """

    version: str
    arch: str
    url: str
    sha256: str
    size: int
    origin: Origin
    source: str
    date: str = ""
    accepted: str = ""

    @property
    def key(self) -> str:
        return archive_key(self.version, self.arch)

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


def archive_key(version: str, arch: str) -> str:
    """'580.178.04-amd64'."""
    return f"{version}-{arch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    targets: Mapping[str, TargetLock] = field(default_factory=dict)
    archives: Mapping[str, LockedArchive] = field(default_factory=dict)

    def target(self, os_key: str, arch: str) -> TargetLock | None:
        return self.targets.get(f"{os_key}-{arch}")

    def kernels_of(self, os: OsId, arch: str) -> Collection[str]:
        """The releases that are known of a node's OS and architecture."""
        target = self.target(os.tag, arch) or self.target(os.key, arch)
        return target.kernels if target else ()

    def with_targets(self, targets: Iterable[TargetLock]) -> Lock:
        """This lock with some targets replaced or added; the others stay as they are."""
        return replace(self, targets={**self.targets, **{target.key: target for target in targets}})

    def archive(self, version: str, arch: str) -> LockedArchive | None:
        return self.archives.get(archive_key(version, arch))

    def with_archives(self, archives: Iterable[LockedArchive]) -> Lock:
        """This lock with some archives replaced or added."""
        return replace(self, archives={**self.archives, **{archive.key: archive for archive in archives}})
