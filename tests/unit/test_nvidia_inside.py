"""Which driver an archive is, told by its first bytes."""

from __future__ import annotations

import lzma
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
