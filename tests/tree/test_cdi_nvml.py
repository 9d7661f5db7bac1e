"""NVML through nvidia-ml-py and a stand-in for libnvidia-ml that is compiled here."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from driverforge_toolkit.adapters.nvml import sysfs_address
from support.fakes import nvmllibrary
from support.process import Finished, missing, run

ASK = """
import dataclasses, json, sys
from driverforge_core.errors import Unavailable
from driverforge_toolkit.adapters.nvml import PyNvml
try:
    print(json.dumps([dataclasses.asdict(gpu) for gpu in PyNvml(sys.argv[1]).gpus()]))
except Unavailable as error:
    print(json.dumps(error.brief))
"""

pytestmark = pytest.mark.skipif(
    bool(missing("cc")), reason="no C compiler to make a stand-in for libnvidia-ml"
)


def ask(library: Path) -> Finished:
    """In a process of its own: a loaded library stays loaded."""
    path = ":".join(entry for entry in sys.path if entry)
    return run(sys.executable, "-c", ASK, library, env={"PYTHONPATH": path})


def answer(folder: Path, changes: str = "") -> object:
    return json.loads(ask(nvmllibrary.build(folder, changes=changes)).stdout)


def graphics(found: object) -> list[bool]:
    assert isinstance(found, list)
    return [mig["graphics"] for gpu in found for mig in gpu["migs"]]


def test_gpus_and_mig_devices(tmp_path: Path) -> None:
    """The library is found at its path in the driver root, not where the linker would look."""
    expected = json.loads(json.dumps([asdict(gpu) for gpu in nvmllibrary.GPUS]))
    assert answer(tmp_path) == expected
    assert graphics(expected) == [False, True]


def test_a_driver_that_knows_no_profile_for_graphics(tmp_path: Path) -> None:
    assert graphics(answer(tmp_path, nvmllibrary.OLD_DRIVER)) == [False, False]


def test_a_driver_that_cannot_be_asked_for_a_profile(tmp_path: Path) -> None:
    """The MIG devices are there all the same, and what they lack is said."""
    done = ask(nvmllibrary.build(tmp_path, changes=nvmllibrary.NO_INSTANCES))
    assert graphics(json.loads(done.stdout)) == [False, False]
    assert "it gets no /dev/dri nodes" in done.stderr


def test_no_driver_and_no_gpu_are_said(tmp_path: Path) -> None:
    assert answer(tmp_path, nvmllibrary.NO_DRIVER) == "NVML does not start: Driver Not Loaded"
    assert answer(tmp_path, nvmllibrary.NO_GPU) == "NVML sees no GPU"


def test_a_gpu_that_is_lost_after_all_was_answered_changes_nothing(tmp_path: Path) -> None:
    assert answer(tmp_path, nvmllibrary.LOST_AT_THE_END) == answer(tmp_path / "well")


def test_an_answer_that_is_no_text_is_said(tmp_path: Path) -> None:
    said = answer(tmp_path, nvmllibrary.NO_TEXT)
    assert str(said).startswith("NVML's answer is no text: 'utf-8' codec can't decode byte 0xff")


def test_a_missing_library_is_said(tmp_path: Path) -> None:
    assert "NVML does not start" in ask(tmp_path / "libnvidia-ml.so.1").stdout


def test_addresses_are_those_of_sysfs() -> None:
    assert sysfs_address("00000000:3B:00.0") == "0000:3b:00.0"
    assert sysfs_address("00010000:3B:00.0") == "00010000:3b:00.0"
