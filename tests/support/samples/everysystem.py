"""Repositories of every operating system of a matrix, made of what its rows ask for, on this machine.

Real packages and indexes (dpkg-deb, rpmbuild, createrepo_c), signed where the distribution signs them. The
names are the rows' own: whether those are the real ones, tests/cases/distributions says. One kernel of each
series, all packages next to empty; header packages hold the headers that probes look into.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from driverforge_build.discover.kernels import SMALLEST
from driverforge_build.matrix import DriverRow, KernelSeries, Matrix, OsRow
from driverforge_build.matrix.expand import driver_archs
from driverforge_build.matrix.fields import Arch, filled
from driverforge_core.arch import to_machine
from driverforge_core.kernel import KernelRelease
from support.samples.aptrepo import Archive, Deb, SigningKey
from support.samples.nvidiasite import publish_flat
from support.samples.rpmrepo import Rpm, build_all, index, sign_index
from support.samples.synthetic import release_of

HEADERS = {
    "include/linux/pci.h": "int pci_resize_resource(struct pci_dev *dev, int i, int size);\n",
    "include/linux/mm_types.h": "struct vm_area_struct {\n\tvm_flags_t __vm_flags;\n};\n",
    "include/linux/preempt.h": "#define in_irq()\t\t(hardirq_count())\n",
}

Kernels = Sequence[tuple[KernelSeries, KernelRelease]]


@dataclass(slots=True)
class Shelf:
    """The packages of one OS and architecture by repository: names with a version, and the files inside."""

    row: OsRow
    arch: Arch
    packages: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    fabric: dict[str, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))
    files: dict[str, Mapping[str, str]] = field(default_factory=dict)
    # names of packages with a kernel in them, which is large
    kernels: set[str] = field(default_factory=set)

    def content(self, repository: str) -> list[tuple[str, str]]:
        """Names and versions; of what goes with drivers there is a version for each."""
        return [*self.packages[repository].items(), *sorted(self.fabric[repository])]

    def put(self, repository: str, names: Sequence[str], version: str = "1.0-1") -> None:
        self.packages[repository] |= dict.fromkeys(names, version)


def shelf(matrix: Matrix, whole: OsRow, arch: Arch) -> Shelf:
    """What a row asks of its repositories, for one kernel of each series."""
    row = whole.on(arch)
    made = Shelf(row, arch)
    main = next(one.id for one in row.repositories if not one.vendors)
    made.put(main, [row.python.package, *row.tools.runtime, *row.tools.jit])
    kernels = [(series, release_of(series, arch)) for series in row.kernels if series.flavours.get(arch)]
    for series, release in kernels:
        made.put(main, series.compilers)
        _put_kernel(made, series, release)
    for driver in row.drivers:
        if arch not in driver_archs(matrix, whole, driver):
            continue
        _put_modules(made, driver, kernels)
        if driver.payload == "packages":
            _put_userspace(made, driver)
        if (fabric := row.fabric_of(driver)) is not None:
            (vendor,) = row.vendors
            made.fabric[vendor] |= {(name, f"{driver.version}-1") for name in driver.filled(fabric.packages)}
            made.fabric[vendor] |= {(name, "2025.10-1") for name in fabric.companions}
    return made


def _put_kernel(made: Shelf, series: KernelSeries, release: KernelRelease) -> None:
    entitled = [one.id for one in made.row.repositories if one.entitled and one.id in series.repositories]
    version = _version(made.row, release)
    headers, images = list(series.headers), [series.image[0], *series.modules]
    if made.row.package_manager == "apt":
        headers, images = (list(filled(names, release=release.text)) for names in (headers, images))
    else:
        headers, images = ([name.partition("-{")[0] for name in names] for names in (headers, images))
    made.put(series.repositories[0], headers, version)
    made.put([*entitled, series.repositories[0]][0], images, version)
    made.kernels.add(images[0])
    for name in headers:
        made.files[name] = {f"/usr/src/{name}-{version}/{path}": text for path, text in HEADERS.items()}


def _version(row: OsRow, release: KernelRelease) -> str:
    """The version of a kernel's packages: of RPM the release itself, which SUSE ends with the rebuild."""
    if row.package_manager == "apt":
        return "1.0-1"
    if row.package_manager == "zypper":
        return f"{release.text.rpartition('-')[0]}.1"
    return release.text.partition("+")[0].rpartition(".")[0]


def _put_modules(made: Shelf, driver: DriverRow, kernels: Kernels) -> None:
    version = f"{driver.version}-1"
    for source in driver.modules:
        if not driver.vendor_modules:
            made.put(driver.repositories[0], driver.filled(source.packages), version)
        for series, release in kernels:
            if driver.vendor_modules and driver.takes(series.id):
                # Canonical makes those of all branches together, with the kernel
                built = "1.0-1" if made.row.package_manager == "apt" else version
                if made.row.package_manager == "zypper":
                    kernel = release.text.rpartition("-")[0].replace("-", "_")
                    built = f"{driver.version}_k{kernel}-150700.1.1"
                made.put(driver.repositories[0], driver.filled(source.packages, kernel=release), built)


def _put_userspace(made: Shelf, driver: DriverRow) -> None:
    version = f"{driver.version}-1"
    there = {name for names in made.packages.values() for name in names}
    firmware = driver.filled([driver.firmware.package]) if driver.firmware else ()
    own = [*driver.filled(driver.userspace), *firmware]
    made.put(driver.repositories[-1], [name for name in own if name not in there], version)
    made.put(driver.repositories[-1], driver.companions, version)


@dataclass(frozen=True, slots=True)
class Systems:
    """Repositories on this machine. `mirrors` are the words of --mirror that name them all."""

    mirrors: Mapping[str, str]
    entitled: frozenset[str]

    def words(self, *, subscribed: bool) -> list[str]:
        """Options of a command line; without a subscription its repositories are not named."""
        return [
            word
            for key, address in self.mirrors.items()
            if subscribed or key not in self.entitled
            for word in ("--mirror", f"{key}={address}")
        ]


def publish(matrix: Matrix, folder: Path, key: SigningKey) -> Systems:
    """Write the repositories of all systems."""
    shelves = [shelf(matrix, row, arch) for row in matrix.rows for arch in row.archs]
    mirrors: dict[str, str] = {}
    entitled: set[str] = set()
    write: dict[bool, Callable[[Sequence[Shelf], Path, SigningKey], Iterator[tuple[str, Path]]]]
    write = {True: _write_debs, False: _write_rpms}
    for apt, writer in write.items():
        mine = [one for one in shelves if (one.row.package_manager == "apt") is apt]
        mirrors |= {name: path.as_uri() for name, path in writer(mine, folder, key)}
    for one in shelves:
        entitled |= {f"{_key(one)}/{own.id}" for own in one.row.repositories if own.entitled}
    return Systems(mirrors, frozenset(entitled))


def _key(one: Shelf) -> str:
    return f"{one.row.id}-{one.arch}"


def _write_debs(shelves: Sequence[Shelf], folder: Path, key: SigningKey) -> Iterator[tuple[str, Path]]:
    for one in shelves:
        archive = Archive(folder / _key(one), key)
        for repository in one.row.repositories:
            debs = [deb for name in one.content(repository.id) for deb in _debs(one, *name)]
            if repository.flat:
                flat = folder / _key(one) / repository.id
                yield f"{_key(one)}/{repository.id}", publish_flat(flat, key, debs)
                continue
            filled: dict[str, list[Deb | Path]] = {name: [] for name in repository.components}
            filled[repository.components[0]] = [*debs]
            archive.publish(repository.id, filled, archs=[one.arch])
            yield f"{_key(one)}/{repository.id}", archive.folder


def _debs(one: Shelf, name: str, version: str) -> Iterator[Deb]:
    """A package; of headers those for all architectures beside it, which they depend on."""
    files = one.files.get(name, {})
    if files:
        common = f"{name}-common"
        inside = {path.lstrip("/"): text for path, text in files.items()}
        yield Deb(name=common, version=version, arch="all", files=inside)
        yield Deb(name=name, version=version, arch=one.arch, depends=common)
    else:
        yield Deb(name=name, version=version, arch=one.arch)


def _write_rpms(shelves: Sequence[Shelf], folder: Path, key: SigningKey) -> Iterator[tuple[str, Path]]:
    wanted = {
        (_key(one), repository.id): [_rpm(one, *name) for name in one.content(repository.id)]
        for one in shelves
        for repository in one.row.repositories
    }
    # the systems have many packages alike: each is made once
    unique = {rpm.file_name: rpm for rpms in wanted.values() for rpm in rpms}
    build_all(unique.values(), folder / "rpms")
    for (target, repository), rpms in wanted.items():
        place = folder / target / repository
        place.mkdir(parents=True)
        for rpm in rpms:
            os.link(folder / "rpms" / rpm.file_name, place / rpm.file_name)
        # as product-composer makes Leap 16.0's (openSUSE/product-composer, defaults.py, 2026)
        index(place, *(["--checksum=sha512"] if target.startswith("sles16.") else []))
        sign_index(place, key)
        yield f"{target}/{repository}", place


def _rpm(one: Shelf, name: str, version: str) -> Rpm:
    number, _, release = version.rpartition("-")
    return Rpm(
        name=name,
        version=number,
        release=release,
        arch=to_machine(one.arch),
        files=one.files.get(name, {}),
        zeros=SMALLEST if name in one.kernels else 0,
    )
