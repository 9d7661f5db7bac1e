"""The trial that decides what guests run on, with a real kernel."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from driverforge_build.engine.accelerator import Accelerator, judge, without_device
from support.machines import accelerator, kernels
from support.machines.kernels import Image

TCG = Accelerator(kind="tcg", why="for the test").words(accelerator.ARCH)


@pytest.fixture(scope="module")
def image() -> Image:
    return kernels.image(kernels.newest("6.1").release)


def descendants() -> list[str]:
    """Programs that this process has started and that are still there."""
    listed = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "comm="], capture_output=True, text=True, check=False
    )
    return [name for name in listed.stdout.split() if name != "ps"]


def test_the_smallest_guest_answers_and_ends_by_itself(image: Image) -> None:
    trial = accelerator.tried(image, words=TCG, limit=300)
    assert trial.status == 0
    assert judge(trial).kind == "kvm", "what it would mean of KVM"


def test_a_guest_that_does_not_answer_is_killed_and_nothing_of_it_is_left(image: Image) -> None:
    trial = accelerator.tried(image, words=(*TCG, "-S"), limit=0.5)  # a machine that is never started
    assert trial.status is None
    assert judge(trial).kind == "tcg"
    assert not [name for name in descendants() if name.startswith("qemu")]


def test_this_machines_answer_is_found_once_and_kept(
    image: Image, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DRIVERFORGE_CACHE", str(tmp_path))
    accelerator.chosen.cache_clear()
    found = accelerator.chosen(image)
    assert found.why
    assert accelerator.known() == found
    accelerator.chosen.cache_clear()
    assert accelerator.chosen(image) == found
    assert len(list((tmp_path / "accelerator").glob("*.json"))) == accelerator.DEVICE.exists()


def test_a_device_file_that_is_not_there_needs_no_trial(tmp_path: Path) -> None:
    missing = tmp_path / "kvm"
    assert without_device(missing) == Accelerator(kind="tcg", why=f"{missing}: No such file or directory")
    missing.touch()
    assert without_device(missing) is None
