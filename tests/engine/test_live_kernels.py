"""The kernels that `driverforge lock` finds on Debian's live mirror are all that apt finds there."""

from __future__ import annotations

from pathlib import Path

import pytest

from driverforge_build.fetch.packagefile import unpack_package
from driverforge_build.verify.tree import kernel_packages, read_tree
from support.aptfetch import MirrorArchive
from support.machines.builderbench import real_lock
from support.skipping import provided

POCKETS = ("", "-updates", "-security", "-backports")


@pytest.mark.parametrize(
    ("suite", "system"),
    [
        ("bookworm", "debian12"),
        pytest.param("trixie", "debian13", marks=pytest.mark.full(reason="reads more")),
    ],
)
def test_every_kernel_of_every_pocket_is_found_and_pinned(suite: str, system: str) -> None:
    locked = real_lock(system).targets[f"{system}-amd64"]
    archive = provided(lambda: MirrorArchive([f"{suite}{pocket}" for pocket in POCKETS]))
    # those without a third number stand for the newest one of a series
    names = archive.names(r"linux-headers-[0-9]+\.[0-9]+\.[0-9].*-amd64")
    there = {name.removeprefix("linux-headers-") for name in names}
    real_time = {name for name in there if name.endswith("-rt-amd64")}
    assert len(there) > len(real_time) > 0
    # NVIDIA's modules refuse a real-time kernel, so the matrix has no such flavour
    assert {str(kernel) for kernel in locked.kernels} == there - real_time
    assert {release.rpartition("-amd64")[0].endswith("-cloud") for release in there} == {True, False}
    for release, kernel in locked.kernels.items():
        pinned = {package.name: package.version for package in kernel.headers}
        name = f"linux-headers-{release}"
        assert pinned[name] == archive.newest(name).version
        # a package that only depends on the kernel has some KiB
        assert kernel.image is not None
        image = archive.newest(kernel.image.name, satisfies=kernel.image.version.__eq__)
        assert int(archive.field(image, "Installed-Size")) > 10_000, image


@pytest.mark.full(reason="downloads kernels")
@pytest.mark.parametrize(("suite", "system"), [("bookworm", "debian12"), ("trixie", "debian13")])
def test_what_is_pinned_of_the_newest_kernel_can_be_booted(suite: str, system: str, tmp_path: Path) -> None:
    """One of backports: Debian has its kernel, modules and list of what is built in apart since 6.19."""
    kernels = real_lock(system).targets[f"{system}-amd64"].kernels
    release = [name for name, kernel in kernels.items() if kernel.flavour == "cloud-amd64"][-1]
    archive = provided(lambda: MirrorArchive([f"{suite}{pocket}" for pocket in POCKETS]))
    for pin in kernel_packages(kernels[release]):
        package = archive.newest(pin.name, satisfies=pin.version.__eq__)
        for deb in archive.download([package]):
            unpack_package(deb, tmp_path)
    tree = read_tree(tmp_path, release)
    assert tree.image.read_bytes()[0x202:0x206] == b"HdrS", "a bzImage, Documentation/arch/x86/boot.rst"
    assert "dummy" in tree.needed(["dummy"])
    assert tree.builtin
