"""Classes of kernels, told from header packages as the mirror has them.

What a rebuild changes is what Debian's own does: 6.1.0-56 (6.1.192-2) has no other difference to 6.1.0-55.
Which two of such kernels a mirror has changes, so one is made here: another number in the same packages.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from driverforge_build.fetch.headers import read_members
from driverforge_core.errors import Unavailable
from driverforge_core.headertree import HeaderDigests, HeaderTree
from support.machines import kernels
from support.machines.kernels import Kernel
from support.process import missing

pytestmark = pytest.mark.skipif(
    bool(missing("apt-get", "dpkg-deb")), reason="needs Debian's packages and dpkg-deb"
)


def newest(flavour: str, series: str = "6.1") -> Kernel:
    try:
        return kernels.newest(series, flavour=flavour, native=False)
    except Unavailable as error:
        pytest.skip(error.brief)


def digests(debs: tuple[Path, ...], name: str) -> HeaderDigests:
    """What `lock` records; the package that kernels of all names use names none of them."""
    found = []
    for deb in debs:
        tree = HeaderTree("" if deb.name.startswith("linux-kbuild-6.1_") else name)
        read_members(deb, [], tree=tree)
        found.append(tree.digests())
    return HeaderDigests.of_all(found)


def different(one: HeaderDigests, other: HeaderDigests) -> set[str]:
    names = (part.name for part in fields(HeaderDigests))
    return {name for name in names if getattr(one, name) != getattr(other, name)}


def test_a_rebuild_is_of_the_same_class(tmp_path: Path) -> None:
    kernel = newest("cloud-amd64")
    debs = kernels.header_debs(kernel)
    renamed, again = kernels.rebuilt(kernel, tmp_path)
    old, new = kernels.abi(kernel.release), kernels.abi(renamed)
    assert sum(old in deb.name for deb in debs) == 2, "its own package and the common one"
    assert not [deb.name for deb in again if old in deb.name]
    assert digests(again, new) == digests(debs, old)
    # the rebuild is really another one: without its name left out, all parts that have one differ
    assert different(digests(again, ""), digests(debs, "")) == {"files", "config", "symvers"}


@pytest.mark.full(reason="unpacks two more kernels")
def test_flavours_of_one_source_are_not() -> None:
    cloud, usual = newest("cloud-amd64"), newest("amd64")
    assert kernels.abi(cloud.release) == kernels.abi(usual.release)
    found = [digests(kernels.header_debs(kernel), kernels.abi(kernel.release)) for kernel in (cloud, usual)]
    assert different(*found) == {"files", "config", "symvers"}


def test_an_update_of_the_series_is_not() -> None:
    by_source = {package.version.partition("-")[0]: package for package in kernels.candidates("6.1")}
    if len(by_source) < 2:
        pytest.skip("the mirror has the series in one upstream version")
    one, other = map(kernels.headers, [*by_source.values()][:2])
    found = [digests(kernels.header_debs(kernel), kernels.abi(kernel.release)) for kernel in (one, other)]
    assert {"files", "symvers"} <= different(*found)
