"""Headers out of .rpm files that rpmbuild made, in each of its compressions, and out of broken ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_build import packed
from driverforge_build.discover.rpm.primary import read_primary
from driverforge_build.fetch.headers import read_members
from driverforge_core.errors import InputError
from driverforge_core.headertree import HeaderDigests, HeaderTree
from support.process import missing
from support.samples.rpmrepo import Rpm, build_all, index

PROGRAMS = ("rpmbuild", "createrepo_c")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)
PCI = "*/include/linux/pci.h"
TREE = "/usr/src/kernels/5.14.0-1.el9.x86_64"
DEVEL = Rpm(
    name="kernel-devel",
    version="5.14.0",
    release="1.el9",
    arch="x86_64",
    files={
        f"{TREE}/Makefile": "all:",
        # longer than a step of cpio, and not a multiple of it
        f"{TREE}/include/linux/pci.h": "int pci_enable_device(struct pci_dev *dev);" * 99,
        # what the tools bring along is not the kernel's
        f"{TREE}/tools/include/linux/pci.h": "another",
    },
)


def made(folder: Path, payload: str = "w1.gzdio") -> Path:
    (path,) = build_all([DEVEL], folder, payload=payload)
    return path


@pytest.mark.parametrize("payload", ["w1.gzdio", "w1.xzdio", "w1.bzdio", "w1.zstdio", "w1.ufdio"])
def test_every_compression_that_rpm_has(tmp_path: Path, payload: str) -> None:
    if payload == "w1.zstdio" and packed.zstd is None:
        pytest.skip("backports.zstd is not installed (Python 3.14 has it)")
    found = read_members(made(tmp_path, payload), [PCI, "*/include/linux/none.h"])
    assert found == {PCI: DEVEL.files[f"{TREE}/include/linux/pci.h"]}


@pytest.mark.parametrize("keep", [100, 2000, -40])
def test_a_torn_package(tmp_path: Path, keep: int) -> None:
    path = made(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match="cannot be read as a package"):
        read_members(path, ["*/include/linux/none.h"])


def test_a_package_that_unpacks_to_more_than_it_may(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it unpacks to more than 1000 bytes"):
        read_members(made(tmp_path), [PCI], limit=1000)


def test_digests_of_a_rebuild_are_the_same(tmp_path: Path) -> None:
    """A package with the headers, configuration and symbols of a kernel, in a folder with its name."""

    def digests(number: int, symbols: str) -> HeaderDigests:
        release = f"5.14.0-{number}.el9.x86_64"
        tree = f"/usr/src/kernels/{release}"
        files = {
            f"{tree}/.config": f'# Linux {release} Configuration\nCONFIG_BUILD_SALT="{release}"\n',
            f"{tree}/include/generated/utsrelease.h": f'#define UTS_RELEASE "{release}"\n',
            f"{tree}/include/config/kernel.release": release,
            f"{tree}/Module.symvers": symbols,
        }
        (path,) = build_all([replace(DEVEL, release=f"{number}.el9", files=files)], tmp_path / str(number))
        found = HeaderTree(release)
        read_members(path, [], tree=found)
        return found.digests()

    first = digests(1, "0x1\tkfree")
    assert digests(2, "0x1\tkfree") == first
    assert digests(3, "0x2\tkfree") == replace(first, symvers=digests(3, "0x2\tkfree").symvers) != first


def test_what_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "a.rpm").write_bytes(b"<html>log in first</html>")
    with pytest.raises(InputError, match=r"neither a .deb nor an .rpm"):
        read_members(tmp_path / "a.rpm", [PCI])


def test_an_index_that_unpacks_to_more_than_any_has(tmp_path: Path) -> None:
    made(tmp_path)
    index(tmp_path)
    (primary,) = (tmp_path / "repodata").glob("*-primary.xml.gz")
    archs = frozenset(["x86_64"])
    assert [one.name for one in read_primary(primary, ".gz", archs=archs)] == ["kernel-devel"]
    with pytest.raises(InputError, match="it unpacks to more than 1000 bytes"):
        list(read_primary(primary, ".gz", archs=archs, limit=1000))
