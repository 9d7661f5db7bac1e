"""What a cell needs of the lock: its packages by role, and the downloads that have no pin."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from driverforge_build.lock.pins import (
    Lock,
    LockedBase,
    LockedKernel,
    LockedPackage,
    Role,
    Roles,
    TargetLock,
)
from driverforge_build.matrix import Cell, OsRow
from driverforge_build.matrix.fields import filled
from driverforge_build.nvidia.site import is_nvidias
from driverforge_core.arch import to_machine


def missing_pins(cell: Cell, lock: Lock) -> list[str]:
    """The downloads of a cell that the lock does not pin, one sentence each."""
    problems = []
    if cell.driver.payload == "runfile" and archive_of(cell, lock) is None:
        problems = [f"NVIDIA's archive {cell.driver.version} for {cell.arch} is not pinned"]
    target = lock.target(cell.os.id, cell.arch)
    if image := unpinned_image(cell, target):
        problems.append(f"the driver image {image} is not pinned")
    roles = target.drivers.get(cell.driver.version) if target else None
    if target is None or roles is None:
        return [*problems, f"the lock does not know {cell.driver.version} for {cell.os.id}-{cell.arch}"]
    problems += [
        f"no package is pinned for the role {role!r}" for role in _roles(cell) if not roles.get(role)
    ]
    kernel = target.kernels.get(str(cell.kernel))
    if _modules_in_packages(cell):
        names = {package.name for package in _modules(cell, roles, kernel)}
        problems += [
            f"the package {name} (modules) is not pinned"
            for kind in _packaged_types(cell)
            for name in module_packages(cell, kind)
            if name not in names
        ]
    if cell.kernel and not cell.driver.vendor_modules and not (kernel and kernel.headers):
        problems.append(f"the headers of {cell.kernel} are not pinned")
    return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """NVIDIA's archive that an image is made from: a runfile or a redistributable one."""

    url: str
    sha256: str


def archive_of(cell: Cell, lock: Lock) -> Archive | None:
    """The archive of a cell with payload runfile: its row's own pin, else the lock's.

    A site's own address is kept where it has the file that the lock names.
    """
    own = cell.driver.runfile_url(to_machine(cell.arch))
    if sha256 := cell.driver.sha256.get(cell.arch):
        return Archive(url=own, sha256=sha256)
    pin = lock.archive(cell.driver.version, cell.arch)
    if pin is None:
        return None
    same = not is_nvidias(own) and own.rpartition("/")[2] == pin.name
    return Archive(url=own if same else pin.url, sha256=pin.sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """A repository of a vendor's own, from which BuildKit itself gets packages: no base image is configured
    with it. `url` has no / at the end.
    """

    id: str
    url: str
    packages: tuple[LockedPackage, ...]

    @property
    def argument(self) -> str:
        """The variable of the Dockerfile that a site's mirror changes: CUDA_DEBIAN12_URL."""
        return f"{re.sub(r'[^A-Za-z0-9]', '_', self.id).upper()}_URL"


def vendors_of(cell: Cell, pins: Mapping[str, tuple[LockedPackage, ...]]) -> tuple[Vendor, ...]:
    """The vendors' repositories that packages of an image are from."""
    row = cell.os.on(cell.arch)
    packages = unique_packages(package for listed in pins.values() for package in listed)
    found = [
        Vendor(
            id=one.id,
            url=one.addresses(row.releasever or "")[0].rstrip("/"),
            packages=tuple(package for package in packages if package.suite == one.id),
        )
        for one in row.repositories
        if one.vendors
    ]
    return tuple(vendor for vendor in found if vendor.packages)


def _roles(cell: Cell) -> list[Role]:
    roles: list[Role] = ["tools"] if cell.driver.vendor_modules else ["tools", "toolchain"]
    if cell.driver.userspace or cell.driver.companions:
        roles.append("userspace")
    if cell.driver.payload == "packages" and cell.driver.firmware:
        roles.append("firmware")
    return roles


def jit_module_types(cell: Cell) -> tuple[str, ...]:
    """Module types of the JIT stage, which kernels share.

    A type that an exclusion takes from one kernel alone stays in it.
    """
    gone = {kind for row in cell.dropped if not (row.flavours or row.kernels) for kind in row.module_types}
    return tuple(kind for kind in cell.driver.module_types if kind not in gone)


def filled_for(text: str, cell: Cell) -> str:
    """A matrix text with its placeholders filled in."""
    (done,) = filled(cell.driver.filled([text], kernel=cell.kernel), machine=to_machine(cell.arch))
    return done


def module_packages(cell: Cell, module_type: str) -> tuple[str, ...]:
    """The names of the packages that hold modules of a type: finished ones for a kernel, or sources."""
    return tuple(
        filled_for(name, cell)
        for row in cell.driver.modules
        if row.id == module_type
        for name in row.packages
    )


def source_versions(cell: Cell, packages: Iterable[Iterable[LockedPackage]]) -> dict[str, str]:
    """The versions of the packages with the source of each module type, where packages have it."""
    if cell.driver.payload != "packages" or cell.driver.vendor_modules:
        return {}
    there = {package.name: package.version for some in packages for package in some}
    return {
        kind: there[name]
        for kind in jit_module_types(cell)
        for name in module_packages(cell, kind)
        if name in there
    }


def _modules_in_packages(cell: Cell) -> bool:
    return cell.driver.payload == "packages" or cell.driver.vendor_modules


def _packaged_types(cell: Cell) -> tuple[str, ...]:
    """The module types that a build of the cell gets from packages.

    Kernels share the sources of a JIT stage; finished modules are one kernel's own.
    """
    return cell.module_types if cell.driver.vendor_modules else jit_module_types(cell)


def _modules(cell: Cell, roles: Roles, kernel: LockedKernel | None) -> tuple[LockedPackage, ...]:
    """The packages with the kernel modules: the distribution's for one kernel, or sources for all."""
    if cell.driver.vendor_modules:
        return tuple(kernel.vendor.get(cell.driver.version, ())) if kernel else ()
    return roles.get("source", ())


def unique_packages(packages: Iterable[LockedPackage]) -> tuple[LockedPackage, ...]:
    by_key = {package.key: package for package in packages}
    return tuple(by_key[key] for key in sorted(by_key))


def pins_of(cell: Cell, roles: Roles, kernel: LockedKernel | None) -> dict[str, tuple[LockedPackage, ...]]:
    """Lists by the name of their file.

    Interpreter and tools go with the user space: one list, one RUN, one layer.
    """
    pins = {
        "userspace": unique_packages(
            (*roles.get("tools", ()), *roles.get("userspace", ()), *roles.get("fabric", ()))
        ),
        "toolchain": unique_packages(roles.get("toolchain", ())),
    }
    if cell.driver.payload == "packages":
        pins["firmware"] = roles.get("firmware", ())
    if _modules_in_packages(cell):
        for kind in _packaged_types(cell):
            names = module_packages(cell, kind)
            prefix = "modules" if cell.driver.vendor_modules else "source"
            pins[f"{prefix}-{kind}"] = tuple(
                package for package in _modules(cell, roles, kernel) if package.name in names
            )
    if kernel and not cell.driver.vendor_modules:
        pins["headers"] = kernel.headers
    return {name: packages for name, packages in pins.items() if packages}


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseImage:
    """What an image stands on; as text, what FROM is given. `digest` is '' where nothing pins it."""

    name: str
    digest: str

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else self.name


def base_image(row: OsRow, target: TargetLock | None, bases: Mapping[str, str]) -> BaseImage:
    """The base image of an OS: what the user names, else the matrix; by the digest that it names itself, else
    by the one in the lock.
    """
    return _by_digest(bases.get(row.id, row.base), target.base if target else None)


def base_of(cell: Cell, target: TargetLock | None, bases: Mapping[str, str]) -> BaseImage:
    """What an image of a cell stands on: the driver image of payload `image`, else the base of the OS."""
    if image := cell.driver.image_for(cell.os.id):
        return _by_digest(image, locked_base_of(cell, target))
    return base_image(cell.os, target, bases)


def locked_base_of(cell: Cell, target: TargetLock | None) -> LockedBase | None:
    """What the lock has of the image that `base_of` names, or of another in its place."""
    if target is None:
        return None
    return target.images.get(cell.driver.version) if cell.driver.payload == "image" else target.base


def unpinned_image(cell: Cell, target: TargetLock | None) -> str:
    """The driver image of payload `image` where nothing pins it, else ''."""
    base = base_of(cell, target, {})
    return base.name if cell.driver.payload == "image" and not base.digest else ""


def _by_digest(reference: str, locked: LockedBase | None) -> BaseImage:
    name, _, digest = reference.partition("@")
    if not digest and locked and locked.reference == name:
        digest = locked.digest
    return BaseImage(name=name, digest=digest)
