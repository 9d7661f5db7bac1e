"""What a cell needs of the lock: its packages by role, and the downloads that have no pin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from driverforge_build.lock.pins import Lock, LockedKernel, LockedPackage, Role, Roles
from driverforge_build.matrix import Cell
from driverforge_build.matrix.fields import filled
from driverforge_build.nvidia.site import is_nvidias
from driverforge_core.arch import to_machine


def missing_pins(cell: Cell, lock: Lock) -> list[str]:
    """The downloads of a cell that the lock does not pin, one sentence each."""
    problems = []
    if cell.driver.payload == "runfile" and archive_of(cell, lock) is None:
        problems = [f"NVIDIA's archive {cell.driver.version} for {cell.arch} is not pinned"]
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
    driver, release = cell.driver, str(cell.kernel or "")
    return filled(
        (text,), version=driver.version, branch=driver.branch, release=release, machine=to_machine(cell.arch)
    )[0]


def _module_packages(cell: Cell) -> list[tuple[str, str]]:
    return [
        (row.id, filled_for(name, cell))
        for row in cell.driver.modules
        if row.id in jit_module_types(cell)
        for name in row.packages
    ]


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
