"""Which finished modules of a distribution are pinned for a kernel: of each type all, in one version."""

from __future__ import annotations

import pytest

from driverforge_build.discover.apt.restricted_modules import finished_modules
from driverforge_build.discover.apt.stanzas import add_stanzas, new_index
from driverforge_build.discover.kernels import Kernel
from driverforge_build.discover.offered import PackageIndex
from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.model import ModuleSource
from driverforge_core.kernel import KernelRelease

RELEASE = "6.8.0-106-generic"
MODULES, SIGNATURES = "modules-{release}", "signatures-{release}"


def index(**offered: tuple[str, ...]) -> PackageIndex:
    made = new_index()
    for name, versions in offered.items():
        stanzas = (
            f"Package: {name}-{RELEASE}\nVersion: {version}\nArchitecture: amd64\nFilename: pool/{name}.deb\n"
            f"SHA256: {'a' * 64}\nSize: 1\n".encode()
            for version in versions
        )
        add_stanzas(made, stanzas, suite="main")
    return made


@pytest.mark.parametrize(
    ("modules", "signatures", "version"),
    [
        (("1.2", "1.1"), ("1.2", "1.1"), "1.2"),
        (("1.2", "1.1"), ("1.1",), "1.1"),
        (("1.1",), ("1.2", "1.1"), "1.1"),
        (("1.2",), ("1.1",), ""),
        (("1.2",), (), ""),
    ],
)
def test_finished_modules_are_taken_in_one_version(
    modules: tuple[str, ...], signatures: tuple[str, ...], version: str
) -> None:
    row = next(row for row in load_matrix().rows if row.id == "ubuntu24.04").on("amd64")
    driver = next(driver for driver in row.drivers if driver.vendor_modules)
    source = ModuleSource(id=driver.module_types[0], packages=(MODULES, SIGNATURES))
    driver = driver.model_copy(
        update={"modules": (source,), "module_types": (source.id,), "repositories": ()}
    )
    found = index(modules=modules, signatures=signatures)
    (header,) = index(headers=("1",)).versions(f"headers-{RELEASE}")
    kernel = Kernel(
        release=KernelRelease.parse(RELEASE),
        series=row.kernels[0],
        compiler="gcc",
        headers=(header,),
        image=header,
        links=(),
    )
    pinned = finished_modules(found, kernel, driver)
    assert [package.version for package in pinned] == [version] * 2 * bool(version)
