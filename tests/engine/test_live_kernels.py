"""The kernels that `driverforge lock` finds on Debian's live mirror are all that apt finds there."""

from __future__ import annotations

import pytest

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
