"""What an image is made of: the frozen value that the templates read.

Without a pin for every download there is none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from driverforge_build.advice import Given
from driverforge_build.lock.pins import Lock, LockedPackage, TargetLock
from driverforge_build.matrix import Cell
from driverforge_build.render.requirements import (
    Archive,
    BaseImage,
    Vendor,
    archive_of,
    base_of,
    filled_for,
    jit_module_types,
    missing_pins,
    pins_of,
    source_versions,
    vendors_of,
)
from driverforge_build.render.sitecertificate import read_certificate
from driverforge_core.certificate import Certificate
from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import InputError
from driverforge_core.image import ImageFacts
from driverforge_core.tags import immutable_tag, jit_tag, precompiled_tag

EARLIEST_EPOCH = 315532800
"""1980-01-01: the oldest time that a zip archive, and so every tool, can tell."""
FILE_TIME = 946684800
"""2000-01-01: the time of every file that is put into an image, whatever day its lock is of. With another
time, layers of the same content would be others.
"""
FIRMWARE = "/opt/driverforge/firmware"
SOURCE_FOLDERS = {"open": "kernel-open", "proprietary": "kernel"}


SIGNER_LABEL, SIGNER_KEY_LABEL = "io.driverforge.signer", "io.driverforge.signer-key"
"""The name of the certificate that an image's modules are signed for, and its key's identifier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Kernel module sources of one type.

    `path` is theirs in the image; `tree` where a package has them, which payload `packages` alone reads.
    """

    module_type: str
    path: str
    tree: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSpec:
    """One driver image.

    `pins` maps the name of a list in the context to its packages. `kernel` is '' for a JIT image.
    `packages_only` are the repositories whose packages have to prove themselves who made them, for nobody
    signs their indexes; `entitled` are those of a subscription. `vendors` are where packages are from that
    BuildKit downloads itself.
    `vendor_modules`: the modules are the distribution's own build; nothing is compiled, and there are no
    sources. `certificate` is that of the key that signs the modules, None where none are compiled or signed.
    `epoch` is the date of the newest repository that was read, in seconds: when the image says that it was
    made.
    """

    id: str
    title: str
    os: str
    arch: str
    family: str
    base: BaseImage
    python: str
    driver: str
    branch: int
    payload: str
    kernel: str
    module_types: tuple[str, ...]
    sources: tuple[Source, ...]
    vendor_modules: bool
    firmware_tree: str
    archive: Archive | None
    vendors: tuple[Vendor, ...]
    pins: Mapping[str, tuple[LockedPackage, ...]]
    packages_only: tuple[str, ...]
    entitled: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    jit_facts: ImageFacts
    facts: ImageFacts
    certificate: Certificate | None = None
    epoch: int = field(default=EARLIEST_EPOCH)

    @property
    def shared_id(self) -> str:
        """The name of what cells have in common whose images share user space and tool chain.

        Such as 'debian12-amd64-535.261.03'.
        """
        return f"{self.os}-{self.arch}-{self.driver}"

    @property
    def vendor_lists(self) -> frozenset[str]:
        """The lists with packages of vendors."""
        ids = {vendor.id for vendor in self.vendors}
        return frozenset(
            name for name, packages in self.pins.items() if any(one.suite in ids for one in packages)
        )

    @property
    def entitled_lists(self) -> dict[str, tuple[str, ...]]:
        """The lists with packages of a subscription's repositories, and the ids of these."""
        suites = {name: {one.suite for one in packages} for name, packages in self.pins.items()}
        found = {name: tuple(id_ for id_ in self.entitled if id_ in own) for name, own in suites.items()}
        return {name: ids for name, ids in found.items() if ids}

    @property
    def stages(self) -> tuple[str, ...]:
        """Stages of the Dockerfile that images of one `shared_id` share."""
        return ("userspace", "jit") if self.kernel and not self.vendor_modules else ("userspace",)

    @property
    def realtime(self) -> bool:
        """Whether its modules are for a real-time kernel, and NVIDIA's build has to be told so."""
        return any(kernel.realtime for kernel in self.facts.kernels)

    @property
    def template(self) -> str:
        return f"{self.family}/Dockerfile.j2"

    @property
    def file_time(self) -> int:
        return FILE_TIME

    @property
    def programs(self) -> tuple[str, ...]:
        """Launchers on the image's PATH: ours, and the name that NVIDIA's operator calls."""
        return ("driverctl", "nvidia-driver")

    @property
    def version(self) -> str:
        """What has to be the same for all architectures that one alias stands for."""
        return self.driver

    @property
    def repository(self) -> str:
        """The last part of the image's name, as the operator's `driver.image`."""
        return "driver"

    def immutable_tag(self, revision: str) -> str:
        """535.261.03-6.1.0-50-cloud-amd64-debian12-r3f2a9c01b7de: written once, ever."""
        return str(
            immutable_tag(
                self.facts.driver,
                self.facts.os,
                revision=revision,
                kernel=self.facts.kernels[0] if self.kernel else None,
            )
        )

    @property
    def alias_tag(self) -> str:
        """The tag that the operator asks for.

        <driver>-<os> without modules; with them <branch>-<kernel>-<os>, on RHEL <driver>-<kernel>-<os>.
        """
        facts = self.facts
        if not facts.kernels:
            return str(jit_tag(facts.driver, facts.os))
        version = facts.driver if self.family == "rhel" else facts.driver.branch
        return str(precompiled_tag(version, facts.kernels[0], facts.os))


def image_specs(cells: Iterable[Cell], lock: Lock, *, given: Given | None = None) -> tuple[ImageSpec, ...]:
    """The images of `cells`. `given` has the site's base images, and serves the advice.

    Raises InputError with every cell that has downloads without a pin, and the command that pins them.
    """
    asked = given or Given()
    specs: list[ImageSpec] = []
    unpinned: list[tuple[Cell, list[str]]] = []
    for cell in cells:
        missing = missing_pins(cell, lock)
        if missing:
            unpinned.append((cell, missing))
        else:
            specs.append(_spec(cell, lock, asked))
    if unpinned:
        raise InputError(
            f"{len(unpinned)} of the cells have downloads without a pin; nothing was written",
            details=[f"{cell}: {problem}" for cell, problems in unpinned for problem in problems],
            resolution=asked.command("lock", select=[cell.key for cell, _ in unpinned]),
        )
    return tuple(specs)


def _spec(cell: Cell, lock: Lock, given: Given) -> ImageSpec:
    target = lock.target(cell.os.id, cell.arch)
    assert target is not None
    base = base_of(cell, target, given.bases)
    kernel = target.kernels.get(str(cell.kernel))
    sources = _sources(cell)
    pins = pins_of(cell, target.drivers[cell.driver.version], kernel)
    archive = archive_of(cell, lock) if cell.driver.payload == "runfile" else None
    jit_facts = _facts(cell, sources, pins, _digest_with_sources(cell, archive, base))
    facts = jit_facts
    if cell.kernel:
        facts = replace(
            jit_facts,
            variant="precompiled",
            kernels=(cell.kernel,),
            module_types=cell.module_types,
            sources={},
        )
    # a distribution's modules have its own signature
    signing = given.certificate if cell.kernel and not cell.driver.vendor_modules else None
    certificate = read_certificate(signing) if signing else None
    return ImageSpec(
        id=cell.key,
        title=_title(cell),
        os=cell.os.id,
        arch=cell.arch,
        family=cell.os.family,
        base=base,
        python=cell.os.python.executable,
        driver=cell.driver.version,
        branch=int(cell.driver.branch),
        payload=cell.driver.payload,
        kernel=str(cell.kernel or ""),
        module_types=cell.module_types,
        sources=sources,
        vendor_modules=cell.driver.vendor_modules,
        firmware_tree=filled_for(cell.driver.firmware.tree, cell)
        if cell.driver.firmware and cell.driver.payload == "packages"
        else "",
        archive=archive,
        vendors=vendors_of(cell, pins),
        pins=pins,
        packages_only=target.packages_only,
        entitled=tuple(one.id for one in cell.os.repositories if one.entitled),
        labels=_labels(cell, base, certificate),
        jit_facts=jit_facts,
        facts=facts,
        certificate=certificate,
        epoch=epoch_of(target),
    )


def _sources(cell: Cell) -> tuple[Source, ...]:
    if cell.driver.vendor_modules:
        return ()
    trees: dict[str, str] = {row.id: filled_for(row.tree, cell) for row in cell.driver.modules}
    return tuple(
        Source(
            module_type=kind,
            path=f"/usr/src/nvidia-{cell.driver.version}/{SOURCE_FOLDERS[kind]}",
            tree=trees.get(kind, ""),
        )
        for kind in jit_module_types(cell)
    )


def _facts(
    cell: Cell,
    sources: tuple[Source, ...],
    pins: Mapping[str, tuple[LockedPackage, ...]],
    whole: str,
) -> ImageFacts:
    return ImageFacts(
        os=cell.id.os,
        arch=cell.arch,
        driver=DriverVersion(cell.driver.version),
        payload=cell.driver.payload,
        module_types=jit_module_types(cell),
        variant="jit",
        kernels=(),
        sources={source.module_type: source.path for source in sources},
        firmware=FIRMWARE,
        source_digests={
            source.module_type: digest
            for source in sources
            if (digest := _source_digest(source, pins, whole))
        },
        source_versions=source_versions(cell, pins.values()),
    )


def _digest_with_sources(cell: Cell, archive: Archive | None, base: BaseImage) -> str:
    """The digest of the one thing that holds all sources, '' where packages hold them."""
    if archive:
        return archive.sha256
    return base.digest if cell.driver.payload == "image" else ""


def _source_digest(source: Source, pins: Mapping[str, tuple[LockedPackage, ...]], whole: str) -> str:
    """What the sources are made of: `whole`, or the packages that hold them; '' where none is pinned."""
    if whole:
        made_of = [whole]
    else:
        made_of = sorted(package.sha256 for package in pins.get(f"source-{source.module_type}", ()))
    digest = hashlib.sha256(" ".join(made_of).encode()).hexdigest()
    return f"sha256:{digest}" if any(made_of) else ""


def epoch_of(target: TargetLock) -> int:
    dates = [
        int(datetime.fromisoformat(repository.date).timestamp())
        for repository in target.repositories
        if repository.date
    ]
    return max([EARLIEST_EPOCH, *dates])


def _title(cell: Cell) -> str:
    what = f"kernel modules for {cell.kernel}" if cell.kernel else "compiles its kernel modules on the node"
    return f"NVIDIA driver {cell.driver.version} for {cell.os.name} ({cell.arch}), {what}"


def base_labels(base: BaseImage) -> tuple[tuple[str, str], ...]:
    """OCI's labels of the base image (image spec 1.1, annotations)."""
    digest = (("org.opencontainers.image.base.digest", base.digest),) if base.digest else ()
    return (("org.opencontainers.image.base.name", base.name), *digest)


def _labels(cell: Cell, base: BaseImage, certificate: Certificate | None) -> tuple[tuple[str, str], ...]:
    """Labels that depend on the cell alone: OCI's, and those that tools for NVIDIA's images read."""
    version = f"{cell.driver.branch}-{cell.kernel}" if cell.kernel else cell.driver.version
    title = _title(cell)
    signer: tuple[tuple[str, str], ...] = ()
    if certificate:
        signer = (
            (SIGNER_LABEL, certificate.name),
            (SIGNER_KEY_LABEL, certificate.key_id),
        )
    return (
        ("name", "NVIDIA Driver Container"),
        ("vendor", "driverforge"),
        ("version", version),
        ("release", str(cell.kernel or "N/A")),
        ("summary", title),
        ("description", title),
        ("io.k8s.display-name", "NVIDIA Driver Container"),
        ("io.driverforge.cell", cell.key),
        ("io.driverforge.module-types", " ".join(cell.module_types)),
        *signer,
        ("org.opencontainers.image.title", "NVIDIA Driver Container"),
        ("org.opencontainers.image.description", title),
        ("org.opencontainers.image.vendor", "driverforge"),
        ("org.opencontainers.image.version", version),
        *base_labels(base),
    )
