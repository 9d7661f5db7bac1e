"""A lock that nothing can be downloaded with.

It is for rendering every operating system of the matrix where most cannot be reached. Every hash is made of
the package's own name, and no archive has such a path. To the product it is a lock as any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product, zip_longest

from driverforge_build.lock.pins import Lock, LockedKernel, LockedPackage, LockedRepository, TargetLock
from driverforge_build.matrix import Cell, DriverRow, KernelSeries, Matrix, OsRow, jit_cells, kernel_cells
from driverforge_build.matrix.expand import flavour_of
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.globs import expand_braces
from driverforge_build.matrix.repository import Repository
from driverforge_core.arch import to_machine
from driverforge_core.errors import InputError
from driverforge_core.kernel import KernelRelease

RELEASES = {  # a release for each glob of the matrix; {arch} and {machine} are filled in
    "6.1.*": "6.1.0-50-cloud-{arch}",
    "6.12.*+deb12*": "6.12.95+deb12-cloud-{arch}",
    "6.12.*+deb13*": "6.12.94+deb13-cloud-{arch}",
    "7.*+deb13*": "7.2.13+deb13-cloud-{arch}",
    "5.15.0-*": "5.15.0-181-generic",
    "6.8.0-*": "6.8.0-106-generic",
    "7.0.0-*": "7.0.0-16-generic",
    "4.18.0-*.el8*.{x86_64,aarch64}*": "4.18.0-553.81.1.el8_10.{machine}",
    "5.14.0-*.el9*.{x86_64,aarch64}*": "5.14.0-687.5.1.el9_8.{machine}",
    "5.14.0-*.el9*.aarch64+64k": "5.14.0-687.5.1.el9_8.aarch64+64k",
    "6.12.0-*.el10*.{x86_64,aarch64}*": "6.12.0-211.7.1.el10_2.{machine}",
    "6.12.0-*.el10*.aarch64+64k": "6.12.0-211.7.1.el10_2.aarch64+64k",
    "5.15.0-*.el9uek.{x86_64,aarch64}": "5.15.0-100.96.32.el9uek.{machine}",
    "6.12.0-*.el9uek.{x86_64,aarch64}": "6.12.0-100.28.2.2.el9uek.{machine}",
    "6.1.*.amzn2023.{x86_64,aarch64}": "6.1.166-197.305.amzn2023.{machine}",
    "6.12.*.amzn2023.{x86_64,aarch64}": "6.12.37-61.105.amzn2023.{machine}",
    "6.18.*.amzn2023.{x86_64,aarch64}": "6.18.10-1.1.amzn2023.{machine}",
    "6.12.0-160000.*-default": "6.12.0-160000.5-default",
    "6.12.0-160000.*-64kb": "6.12.0-160000.5-64kb",
    "{6.14.0,6.17.0,7.0.0}-*": "6.17.0-1018-oracle",
    "6.4.0-150700.*-default": "6.4.0-150700.53.19-default",
    "6.4.0-150700.*-64kb": "6.4.0-150700.53.19-64kb",
    "6.4.0-150600.*-default": "6.4.0-150600.23.73-default",
    "6.4.0-150600.*-64kb": "6.4.0-150600.23.73-64kb",
}


def release_of(series: KernelSeries, arch: str) -> KernelRelease:
    """A kernel of a series: one that was seen, else one that its glob and its flavours allow."""
    if (seen := RELEASES.get(series.releases)) is not None:
        return KernelRelease.parse(seen.format(arch=arch, machine=to_machine(arch)))
    return _imagined(series, arch)


def _imagined(series: KernelSeries, arch: str) -> KernelRelease:
    """The first release that fits a series that is new in the matrix.

    The stars of its glob become numbers and a flavour.
    """
    flavours = next(flavours for key, flavours in series.flavours.items() if key == arch)
    parts = ("1.0", "0-1", "0", "", *(f"-{flavour}" for flavour in flavours), f".{to_machine(arch)}")
    for glob in expand_braces(series.releases):
        for chosen in product(parts, repeat=glob.count("*")):
            text = "".join(
                part for pair in zip_longest(glob.split("*"), chosen, fillvalue="") for part in pair
            )
            with suppress(InputError):
                release = KernelRelease.parse(text)
                if flavour_of(release) in flavours:
                    return release
    raise AssertionError(f"RELEASES needs a line for {series.releases!r}: a release that was seen")


def synthetic_package(name: str, version: str, arch: str, suite: str) -> LockedPackage:
    digest = hashlib.sha256(f"synthetic {name} {version} {arch}".encode()).hexdigest()
    return LockedPackage(
        name=name,
        version=version,
        arch=arch,
        path=f"pool/synthetic/{name}_{version}_{arch}.deb",
        sha256=digest,
        size=len(name),
        suite=suite,
    )


def with_synthetic_runfile(cell: Cell) -> Cell:
    """The cell, its runfile pinned if it has one that the matrix does not pin."""
    if cell.driver.payload != "runfile" or cell.arch in cell.driver.sha256:
        return cell
    digest = hashlib.sha256(f"synthetic runfile {cell.driver.version} {cell.arch}".encode()).hexdigest()
    return replace(
        cell, driver=cell.driver.model_copy(update={"sha256": {**cell.driver.sha256, cell.arch: digest}})
    )


def synthetic_lock(matrix: Matrix) -> Lock:
    """Pins for every OS, architecture, driver and one kernel of each series."""
    return Lock().with_targets(_target(row, arch) for row in matrix.rows for arch in row.archs)


def all_cells(matrix: Matrix) -> Iterator[Cell]:
    """Every JIT cell, and one precompiled cell for each series of kernels."""
    yield from map(with_synthetic_runfile, jit_cells(matrix))
    kernels: dict[tuple[str, str], list[KernelRelease]] = {
        (row.id, arch): list(_releases(row, arch)) for row in matrix.rows for arch in row.archs
    }
    yield from map(with_synthetic_runfile, kernel_cells(matrix, kernels))


def _releases(row: OsRow, arch: str) -> Iterator[KernelRelease]:
    for line in row.kernels:
        if any(key == arch for key in line.flavours):
            yield release_of(line, arch)


def _target(whole: OsRow, arch: Arch) -> TargetLock:
    row = whole.on(arch)
    first = next(one for one in row.repositories if not one.vendors)
    suite = first.id

    def packages(names: Iterable[str], version: str, suite: str = suite) -> tuple[LockedPackage, ...]:
        return tuple(synthetic_package(name, version, arch, suite) for name in names)

    def fabric(driver: DriverRow) -> tuple[LockedPackage, ...]:
        rows = [found] if (found := row.fabric_of(driver)) else []
        return tuple(
            package
            for vendor in sorted(row.vendors)
            for one in rows
            for package in (
                *packages(driver.filled(one.packages), f"{driver.version}-1", vendor),
                *packages((name for name in one.companions if name == "nvlsm"), "1", vendor),
                *packages((name for name in one.companions if name != "nvlsm"), "1"),
            )
        )

    return TargetLock(
        os=row.id,
        arch=arch,
        repositories=(_repository(first),),
        drivers={
            driver.version: {
                "tools": packages((row.python.package, *row.tools.runtime), "1"),
                "toolchain": packages(
                    dict.fromkeys(
                        (*row.tools.jit, *(name for line in row.kernels for name in line.compilers))
                    ),
                    "1",
                ),
                "userspace": packages((*driver.userspace, *driver.companions), f"{driver.version}-1"),
                "firmware": packages(
                    [driver.firmware.package] if driver.firmware else [], f"{driver.version}-1"
                ),
                "source": packages(_modules(driver), f"{driver.version}-1"),
                "fabric": fabric(driver),
            }
            for driver in row.drivers
        },
        kernels={
            release.text: LockedKernel(
                release=release.text,
                flavour=release.flavour,
                compiler="gcc",
                headers=packages([f"linux-headers-{release}"], "1"),
                image=synthetic_package(f"linux-image-{release}", "1", arch, suite),
                vendor={
                    driver.version: packages(_modules(driver, release), f"{driver.version}-1")
                    for driver in row.drivers
                    if driver.vendor_modules
                },
            )
            for release in _releases(row, arch)
        },
    )


def _repository(row: Repository) -> LockedRepository:
    return LockedRepository(
        suite=row.id,
        components=(),
        date="2026-01-01T00:00:00Z",
        valid_until="",
        signed_by=() if row.signed == "packages" else ("F" * 40,),
        inrelease="0" * 64,
        indexes={},
    )


def _modules(driver: DriverRow, release: KernelRelease | None = None) -> tuple[str, ...]:
    """Package names: the distribution's for a release, else sources."""
    if driver.vendor_modules != bool(release):
        return ()
    return driver.filled((name for source in driver.modules for name in source.packages), kernel=release)
