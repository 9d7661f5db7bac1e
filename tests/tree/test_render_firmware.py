"""GSP firmware in images: without it open kernel modules drive no GPU, so a build without it fails.

The scripts are those that ship; the archive is a fixture of the shape of NVIDIA's.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_core.errors import CommandFailed
from support.process import Finished, run

VERSION = "580.178.04"


def place(tmp_path: Path) -> Finished:
    script = resources.templates() / "scripts/place-firmware"
    environment = {"DRIVERFORGE_FIRMWARE": str(tmp_path / "image")}
    return run("sh", script, tmp_path / "unpacked", VERSION, env=environment)


def test_firmware_goes_where_driverctl_takes_it_from(tmp_path: Path) -> None:
    (tmp_path / "unpacked").mkdir()
    for name in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
        (tmp_path / "unpacked" / name).write_text(name)
    place(tmp_path)
    folder = tmp_path / f"image/nvidia/{VERSION}"
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "gsp_ga10x.bin": "gsp_ga10x.bin",
        "gsp_tu10x.bin": "gsp_tu10x.bin",
    }


@pytest.mark.parametrize("there", ["nothing", "empty", "other.bin"])
def test_a_package_without_gsp_firmware_fails_the_build(tmp_path: Path, there: str) -> None:
    if there != "nothing":
        (tmp_path / "unpacked").mkdir()
    if there == "other.bin":
        (tmp_path / "unpacked" / there).touch()
    with pytest.raises(CommandFailed) as caught:
        place(tmp_path)
    assert f"no gsp_*.bin in {tmp_path}/unpacked" in "".join(caught.value.details)


# `driver.run --extract-only --target FOLDER`; its installer is not reached
ARCHIVE = """#!/bin/sh
mkdir -p "$3/kernel-open"
[ -z "{there}" ] || {{ mkdir "$3/firmware" && : >"$3/firmware/{there}"; }}
"""


@pytest.mark.parametrize("there", ["", "other.bin"])
def test_an_archive_with_open_modules_and_no_firmware_fails_the_build(tmp_path: Path, there: str) -> None:
    (tmp_path / "driver.run").write_text(ARCHIVE.format(there=there))
    for name in ("unpack-archive", "place-firmware"):
        shutil.copy(resources.templates() / "scripts" / name, tmp_path)
    with pytest.raises(CommandFailed) as caught:
        run("sh", tmp_path / "unpack-archive", "userspace", tmp_path / "driver.run", VERSION, sys.executable)
    assert "place-firmware: no gsp_*.bin in" in "".join(caught.value.details)
