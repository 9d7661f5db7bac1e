"""The digest over what an image is made of: all that it uses, and nothing else that the lock holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from driverforge_build import resources
from driverforge_build.lock.pins import HeaderFact, Lock, LockedKernel, LockedPackage, TargetLock
from driverforge_build.matrix import Cell, load_matrix
from driverforge_build.render.context import BuildContext, context_of
from driverforge_build.render.spec import image_specs
from support.samples.synthetic import all_cells, synthetic_lock

MATRIX = load_matrix()
LOCK = synthetic_lock(MATRIX)
CELLS = {cell.key: cell for cell in all_cells(MATRIX)}
VENDOR = next(
    cell
    for cell in CELLS.values()
    if cell.driver.vendor_modules and len(cell.module_types) == 2 and cell.kernel
)
KINDS = {
    "jit": CELLS["debian12-amd64-535.261.03-jit"],
    "compiled": CELLS["debian12-amd64-535.261.03-6.1.0-50-cloud-amd64"],
    "runfile": CELLS["debian12-amd64-580.178.04-jit"],
    "vendor": VENDOR,
    "vendor, one type": replace(VENDOR, module_types=("open",)),
}


def context(cell: Cell, lock: Lock = LOCK) -> BuildContext:
    (image,) = image_specs([cell], lock)
    return context_of(image, resources.templates())


def used(cell: Cell) -> set[str]:
    return {package.key for packages in context(cell).image.pins.values() for package in packages}


def other(package: LockedPackage, key: str) -> LockedPackage:
    """The same package, or one of other content where it is the one that is meant."""
    return replace(package, sha256="0" * 64) if package.key == key else package


def with_other(target: TargetLock, key: str) -> TargetLock:
    """The target after one package of its lock has become another, in every role and of every kernel."""

    def those(packages: tuple[LockedPackage, ...]) -> tuple[LockedPackage, ...]:
        return tuple(other(package, key) for package in packages)

    def kernel(one: LockedKernel) -> LockedKernel:
        vendor = {version: those(packages) for version, packages in one.vendor.items()}
        return replace(one, headers=those(one.headers), image=other(one.image, key), vendor=vendor)

    drivers = {
        version: {role: those(packages) for role, packages in roles.items()}
        for version, roles in target.drivers.items()
    }
    return replace(
        target, drivers=drivers, kernels={name: kernel(one) for name, one in target.kernels.items()}
    )


def packages_of(target: TargetLock) -> Iterator[LockedPackage]:
    for roles in target.drivers.values():
        for packages in roles.values():
            yield from packages
    for kernel in target.kernels.values():
        yield from (*kernel.headers, kernel.image)
        for packages in kernel.vendor.values():
            yield from packages


@pytest.mark.parametrize("cell", KINDS.values(), ids=KINDS)
def test_each_package_that_is_used_changes_the_inputs_and_no_other_of_the_lock_does(cell: Cell) -> None:
    target = LOCK.targets[f"{cell.os.id}-{cell.arch}"]
    plain, mine = context(cell).inputs, used(cell)
    all_of_it = {package.key for package in packages_of(target)}
    assert mine < all_of_it
    changed = {
        key
        for key in all_of_it
        if context(cell, LOCK.with_targets([with_other(target, key)])).inputs != plain
    }
    assert changed == mine


@pytest.mark.parametrize("cell", KINDS.values(), ids=KINDS)
def test_what_else_the_lock_says_leaves_the_inputs(cell: Cell) -> None:
    key = f"{cell.os.id}-{cell.arch}"
    target = LOCK.targets[key]
    moved = tuple(
        replace(one, date="2026-11-22T00:00:00Z", inrelease="1" * 64, valid_until="2027-01-01T00:00:00Z")
        for one in target.repositories
    )
    unrelated = replace(
        target,
        repositories=moved,
        header_facts={"a=1": {"a question": HeaderFact(breaks=False, found="x")}},
        without_headers=("6.1.0-1-amd64",),
    )
    lock = Lock(targets={key: unrelated})  # and nothing of other systems and architectures
    assert context(cell, lock).inputs == context(cell).inputs


@pytest.mark.parametrize("cell", KINDS.values(), ids=KINDS)
def test_every_file_of_a_context_is_one_that_its_dockerfile_uses(cell: Cell) -> None:
    entries = context(cell).entries
    dockerfile = entries["Dockerfile"].content.decode()
    scripts = [entry.content.decode() for path, entry in entries.items() if path.startswith("scripts/")]
    called = dockerfile + "".join(scripts)
    whole_folders = {name: f"COPY --link {name}/ " for name in ("root", "jit", "precompiled")}
    for path in entries.keys() - {"Dockerfile"}:
        folder, _, name = path.partition("/")
        assert whole_folders.get(folder, name if folder == "scripts" else path) in called, path


def test_which_module_types_are_inside_is_among_the_inputs_and_on_the_label() -> None:
    whole = KINDS["compiled"]
    narrowed = replace(whole, module_types=("proprietary",))
    assert context(narrowed).inputs != context(whole).inputs
    for cell, types in ((whole, "open proprietary"), (narrowed, "proprietary")):
        assert dict(context(cell).image.labels)["io.driverforge.module-types"] == types
