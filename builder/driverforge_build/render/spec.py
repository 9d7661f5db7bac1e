"""What an image is made of: the frozen value that the templates read. Without a pin for every download there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from driverforge_build.advice import Given
from driverforge_build.lock import Lock, LockedKernel, LockedPackage, TargetLock
from driverforge_build.matrix import Cell
from driverforge_build.matrix.model import filled
from driverforge_core.arch import to_machine
from driverforge_core.driver import DriverVersion
from driverforge_core.errors import InputError, Unsupported
from driverforge_core.image import ImageFacts
from driverforge_core.tags import immutable_tag, jit_tag, precompiled_tag

Roles = Mapping[str, tuple[LockedPackage, ...]]
"""Role in the lock -> packages."""

EARLIEST_EPOCH = 315532800  # 1980-01-01: the oldest time that a zip archive, and so every tool, can tell
FIRMWARE = "/opt/driverforge/firmware"
_NO_SHA256 = "has no `sha256: "
SOURCE_FOLDERS = {"open": "kernel-open", "proprietary": "kernel"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Kernel module sources of one type. `path` is theirs in the image; `tree` where a package has them, '' inside a runfile."""

    module_type: str
    path: str
    tree: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Runfile:
    """NVIDIA's self-extracting archive."""

    url: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSpec:
    """One image. `pins` maps the name of a list in the context to its packages; `kernel` is '' for a JIT image.

    `vendor_modules`: the modules are the distribution's own build; nothing is compiled, and there are no sources.

    `epoch` is the date of the newest repository that was read, in seconds: the image's and its files' time.
    """

    id: str
    title: str
    os: str
    arch: str
    family: str
    base: str
    python: str
    driver: str
    branch: int
    payload: str
    kernel: str
    module_types: tuple[str, ...]
    sources: tuple[Source, ...]
    vendor_modules: bool
    firmware_tree: str
    runfile: Runfile | None
    pins: Mapping[str, tuple[LockedPackage, ...]]
    labels: tuple[tuple[str, str], ...]
    jit_facts: ImageFacts
    facts: ImageFacts
    epoch: int = field(default=EARLIEST_EPOCH)

    @property
    def shared_id(self) -> str:
        """What cells whose images share user space and tool chain have in common: 'debian12-amd64-535.261.03'."""
        return f"{self.os}-{self.arch}-{self.driver}"

    @property
    def stages(self) -> tuple[str, ...]:
        """Stages of the Dockerfile that images of one `shared_id` share."""
        return ("userspace", "jit") if self.kernel and not self.vendor_modules else ("userspace",)

    @property
    def template(self) -> str:
        return f"{self.family}/Dockerfile.j2"

    @property
    def programs(self) -> tuple[str, ...]:
        """Launchers on the image's PATH: ours, and the name that NVIDIA's operator calls."""
        return ("driverctl", "nvidia-driver")

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
        """The tag that the operator asks for: <driver>-<os>, or with modules <branch>-<kernel>-<os>, on RHEL <driver>-<kernel>-<os>."""
        facts = self.facts
        if not facts.kernels:
            return str(jit_tag(facts.driver, facts.os))
        version = facts.driver if self.family == "rhel" else facts.driver.branch
        return str(precompiled_tag(version, facts.kernels[0], facts.os))


def image_specs(cells: Iterable[Cell], lock: Lock, *, given: Given | None = None) -> tuple[ImageSpec, ...]:
    """The images of `cells`; `given` has the site's base images, and what the command must say that pins what is missing.

    Raises InputError with every cell that has downloads without a pin, and the command that pins them.
    """
    asked = given or Given()
    specs: list[ImageSpec] = []
    unpinned: dict[str, list[str]] = {}
    for cell in cells:
        missing = missing_pins(cell, lock)
        if missing:
            unpinned[cell.key] = missing
        else:
            specs.append(_spec(cell, lock, asked.bases.get(cell.os.id, cell.os.base)))
    if unpinned:
        raise InputError(
            f"{len(unpinned)} of the cells have downloads without a pin; nothing was written",
            details=[f"{cell}: {problem}" for cell, problems in unpinned.items() for problem in problems],
            resolution=_how_to_pin(unpinned, asked),
        )
    return tuple(specs)


def _how_to_pin(unpinned: Mapping[str, list[str]], given: Given) -> str:
    lockable = [
        cell for cell, problems in unpinned.items() if any(_NO_SHA256 not in problem for problem in problems)
    ]
    by_hand = any(_NO_SHA256 in problem for problems in unpinned.values() for problem in problems)
    steps = [given.command("lock", select=lockable)] if lockable else []
    return "; ".join(steps + ["add the archive's sha256 to the driver's row of your matrix"] * by_hand)


def missing_pins(cell: Cell, lock: Lock) -> list[str]:
    """The downloads of a cell that the lock does not pin, one sentence each."""
    if cell.driver.payload == "runfile" and cell.arch not in cell.driver.sha256:
        problems = [f"the runfile of {cell.driver.version} {_NO_SHA256}{{{cell.arch}: ...}}` in the matrix"]
    else:
        problems = []
    target = lock.target(cell.os.id, cell.arch)
    roles = target.drivers.get(cell.driver.version) if target else None
    if target is None or roles is None:
        return [*problems, f"the lock does not know {cell.driver.version} for {cell.os.id}-{cell.arch}"]
    problems += [
        f"no package is pinned for the role {role!r}" for role in _roles(cell) if not roles.get(role)
    ]
    kernel = target.kernels.get(str(cell.kernel))
    if cell.driver.payload == "packages":
        names = {package.name for package in _modules(cell, roles, kernel)}
        problems += [
            f"the package {name} (modules) is not pinned"
            for _, name in _module_packages(cell)
            if name not in names
        ]
    if cell.kernel and not cell.driver.vendor_modules and not (kernel and kernel.headers):
        problems.append(f"the headers of {cell.kernel} are not pinned")
    return problems


def _roles(cell: Cell) -> list[str]:
    roles = ["tools"] if cell.driver.vendor_modules else ["tools", "toolchain"]
    if cell.driver.payload == "packages":
        roles.append("userspace")
        if cell.driver.firmware:
            roles.append("firmware")
    return roles


def jit_module_types(cell: Cell) -> tuple[str, ...]:
    """Module types of the JIT stage, which kernels share: what an exclusion takes from one kernel alone stays in it."""
    gone = {kind for row in cell.dropped if not (row.flavours or row.kernels) for kind in row.module_types}
    return tuple(kind for kind in cell.driver.module_types if kind not in gone)


def _filled(text: str, cell: Cell) -> str:
    """A matrix text with its placeholders filled in."""
    driver, release = cell.driver, str(cell.kernel or "")
    return filled(
        (text,), version=driver.version, branch=driver.branch, release=release, machine=to_machine(cell.arch)
    )[0]


def _module_packages(cell: Cell) -> list[tuple[str, str]]:
    return [
        (row.id, _filled(name, cell))
        for row in cell.driver.modules
        if row.id in jit_module_types(cell)
        for name in row.packages
    ]


def _modules(cell: Cell, roles: Roles, kernel: LockedKernel | None) -> tuple[LockedPackage, ...]:
    """The packages with the kernel modules: the distribution's for one kernel, or sources for all."""
    if cell.driver.vendor_modules:
        return tuple(kernel.vendor.get(cell.driver.version, ())) if kernel else ()
    return roles.get("source", ())


def _spec(cell: Cell, lock: Lock, base: str) -> ImageSpec:
    target = lock.target(cell.os.id, cell.arch)
    assert target is not None
    if cell.driver.payload == "image":
        raise Unsupported(
            f"{cell.id}: payload `image` cannot be built by this version",
            resolution="use payload packages or runfile",
        )
    kernel = target.kernels.get(str(cell.kernel))
    sources = _sources(cell)
    jit_facts = _facts(cell, sources)
    facts = jit_facts
    if cell.kernel:
        facts = replace(
            jit_facts,
            variant="precompiled",
            kernels=(cell.kernel,),
            module_types=cell.module_types,
            sources={},
        )
    runs_file = cell.driver.payload == "runfile"
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
        firmware_tree=_filled(cell.driver.firmware.tree, cell)
        if cell.driver.firmware and not runs_file
        else "",
        runfile=Runfile(url=_filled(cell.driver.url or "", cell), sha256=cell.driver.sha256[cell.arch])
        if runs_file
        else None,
        pins=_pins(cell, target.drivers[cell.driver.version], kernel),
        labels=_labels(cell, base),
        jit_facts=jit_facts,
        facts=facts,
        epoch=epoch_of(target),
    )


def _sources(cell: Cell) -> tuple[Source, ...]:
    if cell.driver.vendor_modules:
        return ()
    trees: dict[str, str] = {row.id: _filled(row.tree, cell) for row in cell.driver.modules}
    return tuple(
        Source(
            module_type=kind,
            path=f"/usr/src/nvidia-{cell.driver.version}/{SOURCE_FOLDERS[kind]}",
            tree=trees.get(kind, ""),
        )
        for kind in jit_module_types(cell)
    )


def _pins(cell: Cell, roles: Roles, kernel: LockedKernel | None) -> dict[str, tuple[LockedPackage, ...]]:
    """Lists by the name of their file. Interpreter and tools go with the user space: one list, one RUN, one layer."""
    pins = {
        "userspace": unique_packages((*roles.get("tools", ()), *roles.get("userspace", ()))),
        "toolchain": unique_packages(roles.get("toolchain", ())),
    }
    if cell.driver.payload == "packages":
        pins["firmware"] = roles.get("firmware", ())
        for kind in jit_module_types(cell):
            names = {name for source, name in _module_packages(cell) if source == kind}
            prefix = "modules" if cell.driver.vendor_modules else "source"
            pins[f"{prefix}-{kind}"] = tuple(
                package for package in _modules(cell, roles, kernel) if package.name in names
            )
    if kernel and not cell.driver.vendor_modules:
        pins["headers"] = kernel.headers
    return {name: packages for name, packages in pins.items() if packages}


def unique_packages(packages: Iterable[LockedPackage]) -> tuple[LockedPackage, ...]:
    by_key = {package.key: package for package in packages}
    return tuple(by_key[key] for key in sorted(by_key))


def _facts(cell: Cell, sources: tuple[Source, ...]) -> ImageFacts:
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
    )


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


def _labels(cell: Cell, base: str) -> tuple[tuple[str, str], ...]:
    """Labels that depend on the cell alone: OCI's, and those that tools for NVIDIA's images read."""
    version = f"{cell.driver.branch}-{cell.kernel}" if cell.kernel else cell.driver.version
    title = _title(cell)
    return (
        ("name", "NVIDIA Driver Container"),
        ("vendor", "driverforge"),
        ("version", version),
        ("release", str(cell.kernel or "N/A")),
        ("summary", title),
        ("description", title),
        ("io.k8s.display-name", "NVIDIA Driver Container"),
        ("io.driverforge.cell", cell.key),
        ("org.opencontainers.image.title", "NVIDIA Driver Container"),
        ("org.opencontainers.image.description", title),
        ("org.opencontainers.image.vendor", "driverforge"),
        ("org.opencontainers.image.version", version),
        ("org.opencontainers.image.base.name", base),
    )
