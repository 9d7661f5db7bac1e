"""Headers read out of real packages."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from driverforge_build import packed
from driverforge_build.fetch.cache import Cache
from driverforge_build.fetch.headers import FILE_LIMIT, HeaderTexts, read_members
from driverforge_core.errors import InputError
from driverforge_core.headertree import HeaderTree
from support.process import missing
from support.samples.aptrepo import Deb, build_deb
from support.samples.sampledebian import OLD, THREE, kernel_debs

pytestmark = pytest.mark.skipif(bool(missing("dpkg-deb")), reason="not installed: dpkg-deb")

PCI = "include/linux/pci.h"
COMMON = "usr/src/linux-headers-6.1.0-50-common"


@pytest.fixture
def deb(tmp_path: Path) -> Path:
    """A package of common headers: the header that is asked for, and two of its name at other places."""
    common = kernel_debs(OLD, "6.1.176-1", THREE)[2]
    others = {
        f"{COMMON}/tools/{PCI}": "tools",
        f"{COMMON}/arch/x86/{PCI}": "arch",
        f"{COMMON}/include/linux/other.h": "other",
    }
    path = tmp_path / "common.deb"
    build_deb(type(common)(name=common.name, version="1", arch="all", files={**others, **common.files}), path)
    return path


def test_the_header_at_the_top_of_the_tree(deb: Path) -> None:
    assert read_members(deb, [f"*/{PCI}", "*/include/linux/other.h", "*/include/linux/none.h"]) == {
        f"*/{PCI}": f"#ifndef LINUX_PCI_H\n{THREE}\n#endif\n",
        "*/include/linux/other.h": "other",
    }


def rewritten(deb: Path, target: Path, suffix: str) -> Path:
    """The package with its data.tar in another compression, as other builders make it."""
    members = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], capture_output=True, check=True).stdout
    pack = {".gz": ["gzip", "-c"], ".zst": ["zstd", "-qc"]}.get(suffix, ["cat"])
    data = subprocess.run(pack, input=members, capture_output=True, check=True).stdout
    with target.open("wb") as file:
        file.write(b"!<arch>\n")
        for name, content in (
            ("debian-binary", b"2.0\n"),
            ("control.tar.xz", b"odd"),
            (f"data.tar{suffix}", data),
        ):
            file.write(
                f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
                + content
                + b"\n" * (len(content) % 2)
            )
    return target


@pytest.mark.parametrize("suffix", [".gz", ".zst", ""])
def test_other_compressions(deb: Path, tmp_path: Path, suffix: str) -> None:
    """Ubuntu's packages are packed with zstd."""
    if suffix == ".zst" and (packed.zstd is None or missing("zstd")):
        pytest.skip("backports.zstd (Python 3.14 has it) or zstd is not installed")
    assert (
        "pci_resize_resource"
        in read_members(rewritten(deb, tmp_path / "other.deb", suffix), [f"*/{PCI}"])[f"*/{PCI}"]
    )


def test_a_compression_that_is_not_read(deb: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="in a compression that this program reads"):
        read_members(rewritten(deb, tmp_path / "other.deb", ".lz4"), [f"*/{PCI}"])


@pytest.mark.parametrize("keep", [4, 100, 400])
def test_a_file_that_is_no_package(deb: Path, tmp_path: Path, keep: int) -> None:
    torn = tmp_path / "torn.deb"
    torn.write_bytes(deb.read_bytes()[:keep])
    with pytest.raises(InputError):
        read_members(torn, ["*/include/linux/none.h"])


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A member that is no regular file is no header: a package must not make us read something else."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        link = tarfile.TarInfo(f"./{COMMON}/{PCI}")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    path = tmp_path / "link.deb"
    content = data.getvalue()
    path.write_bytes(
        b"!<arch>\n"
        + f"{'data.tar':<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        + content
    )
    assert read_members(path, [f"*/{PCI}"]) == {}


def test_texts_are_kept_by_the_packages_digest(deb: Path, tmp_path: Path) -> None:
    texts = HeaderTexts(Cache(tmp_path / "cache"))
    assert texts.kept("d1", [PCI]) is None
    assert texts.read("d1", deb, [PCI, "include/linux/none.h"]).texts["include/linux/none.h"] is None
    again = HeaderTexts(Cache(tmp_path / "cache"))
    kept = again.kept("d1", ["include/linux/none.h", PCI])
    assert kept is not None
    assert kept.texts["include/linux/none.h"] is None
    assert THREE in str(kept.texts[PCI])
    assert again.kept("d1", [PCI, "include/linux/other.h"]) is None
    again.read("d1", deb, ["include/linux/other.h"])
    assert again.kept("d1", [PCI, "include/linux/other.h"]) is not None
    assert again.kept("d2", [PCI]) is None


def test_digests_are_kept_beside_texts(deb: Path, tmp_path: Path) -> None:
    texts = HeaderTexts(Cache(tmp_path / "cache"))
    texts.read("d1", deb, [PCI])
    assert texts.kept("d1", [PCI], "6.1.0-50") is None
    read = texts.read("d1", deb, [PCI], "6.1.0-50")
    assert read.digests is not None
    assert HeaderTexts(Cache(tmp_path / "cache")).kept("d1", [PCI], "6.1.0-50") == read
    assert texts.kept("d1", [], "6.1.0-5") is None, "another name, other digests"


def test_a_file_that_no_header_package_has_is_too_large(deb: Path, tmp_path: Path) -> None:
    path = tmp_path / "large.deb"
    build_deb(Deb(name="large", version="1", files={f"{COMMON}/vmlinux": "x" * (FILE_LIMIT + 1)}), path)
    assert read_members(path, []) == {}
    with pytest.raises(InputError, match=rf"vmlinux has {FILE_LIMIT + 1} bytes"):
        read_members(path, [], tree=HeaderTree(""))
