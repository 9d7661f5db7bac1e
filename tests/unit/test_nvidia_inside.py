"""Which driver an archive is, told by its first bytes."""

from __future__ import annotations

import lzma
import tracemalloc
from pathlib import Path

import pytest

from driverforge_build.nvidia.inside import HEAD, Inside, inside
from support.samples.runfile import write_redistributable, write_runfile


@pytest.mark.parametrize(("machine", "arch"), [("x86_64", "amd64"), ("aarch64", "arm64")])
def test_a_runfile_has_a_title(tmp_path: Path, machine: str, arch: str) -> None:
    write_runfile(tmp_path / "renamed", "580.159.03", machine)
    assert inside((tmp_path / "renamed").read_bytes()[:HEAD]) == Inside(
        version="580.159.03", arch=arch, runfile=True
    )


@pytest.mark.parametrize(("machine", "arch"), [("x86_64", "amd64"), ("sbsa", "arm64")])
def test_a_redistributable_archive_has_one_folder(tmp_path: Path, machine: str, arch: str) -> None:
    write_redistributable(tmp_path / "renamed", "595.91.07", machine)
    head = (tmp_path / "renamed").read_bytes()[:HEAD]
    assert inside(head) == Inside(version="595.91.07", arch=arch, runfile=False)
    # the first piece of a large one
    assert inside(head[: len(head) - 40]) == Inside(version="595.91.07", arch=arch, runfile=False)


def test_a_small_archive_that_unpacks_to_much_is_not_unpacked() -> None:
    bomb = lzma.compress(bytes(64 << 20), preset=0)
    assert len(bomb) < HEAD
    tracemalloc.start()
    try:
        assert inside(bomb) is None
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_an_archive_that_wants_gigabytes_to_be_unpacked_is_none(tmp_path: Path) -> None:
    write_redistributable(tmp_path / "a", "595.91.07", "x86_64")
    alone = lzma.compress(lzma.decompress((tmp_path / "a").read_bytes()), lzma.FORMAT_ALONE, preset=0)
    assert inside(alone) == Inside(version="595.91.07", arch="amd64", runfile=False)
    # its head: properties, then the size of the dictionary
    assert inside(alone[:1] + (1 << 30).to_bytes(4, "little") + alone[5:]) is None


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"<html>NVIDIA Accelerated Graphics Driver for Linux-x86_64 580.159.03",
        b"#!/bin/sh\necho hello\n",
        b"#!/bin/sh\n# Driver for Linux-riscv64 580.159.03\n",
        lzma.compress(b"no tar at all"),
        lzma.compress(b""),
        b"\xfd7zXZ\0" + bytes(100),
    ],
)
def test_anything_else_is_no_archive_of_nvidias(head: bytes) -> None:
    assert inside(head) is None
