"""place-modules, the script in a build that takes a distribution's finished modules: found, checked against
the driver, described.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.render.spec import FILE_TIME
from driverforge_core.image import ModuleSet
from support.samples.tinyko import append_signature, tiny_ko

KERNEL, DRIVER = "6.8.0-106-generic", "580.173.02"
SCRIPT = resources.templates() / "scripts/place-modules"
LIBRARY = Path(__file__).parents[2] / "entrypoints"


def place(tree: Path, output: Path) -> subprocess.CompletedProcess[str]:
    """Run the script with our library in the place of the image's."""
    text = SCRIPT.read_text().replace("/opt/driverforge/lib", str(LIBRARY))
    words = [sys.executable, "-I", "-c", text, tree, output, DRIVER, KERNEL, "open", "amd64"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(FILE_TIME)}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


def module(version: str = DRIVER) -> bytes:
    return tiny_ko([f"version={version}", f"vermagic={KERNEL} SMP", "depends="])


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize("below", ["kernel/nvidia-580srv-open", "extra/drivers/video/nvidia"])
def test_modules_are_placed_as_they_are_with_a_description(tmp_path: Path, below: str) -> None:
    signed = append_signature(module(), signer=b"Canonical Ltd.", signature=b"sig", id_type=1)
    folder = tmp_path / "tree/lib/modules" / KERNEL / below
    write(folder / "nvidia.ko", signed)
    write(folder / "nvidia-uvm.ko.xz", lzma.compress(module()))
    write(folder / "nvidiafb.ko", module("0"))  # a framebuffer driver of the kernel, none of NVIDIA's
    done = place(tmp_path / "tree", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    placed = tmp_path / "out/opt/lib/modules" / KERNEL / "open"
    described = ModuleSet.from_json((placed / "module-set.json").read_text())
    assert sorted(path.name for path in placed.iterdir()) == ["module-set.json", "nvidia-uvm.ko", "nvidia.ko"]
    assert (placed / "nvidia.ko").read_bytes() == signed
    assert described.signer == "Canonical Ltd."
    assert described.modules == {
        name: f"sha256:{hashlib.sha256((placed / name).read_bytes()).hexdigest()}"
        for name in described.modules
    }
    assert not (tmp_path / "tree").exists()


def test_no_file_or_folder_has_todays_time(tmp_path: Path) -> None:
    write(tmp_path / "tree/lib/modules" / KERNEL / "nvidia.ko", module())
    assert place(tmp_path / "tree", tmp_path / "out").returncode == 0
    placed = [tmp_path / "out", *(tmp_path / "out").rglob("*")]
    assert f"opt/lib/modules/{KERNEL}/open" in {str(path.relative_to(tmp_path / "out")) for path in placed}
    assert {path.stat().st_mtime for path in placed} == {FILE_TIME}


def test_objects_are_linked_by_the_packages_own_script(tmp_path: Path) -> None:
    bits = tmp_path / "tree/lib/modules" / KERNEL / "kernel/nvidia-580srv/bits"
    write(bits / "half.o", module())
    write(bits / "BUILD", b"mv half.o ../nvidia.ko\n")
    assert place(tmp_path / "tree", tmp_path / "out").returncode == 0
    assert (tmp_path / "out/opt/lib/modules" / KERNEL / "open/nvidia.ko").read_bytes() == module()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "the packages hold no nvidia.ko for 6.8.0-106-generic; found: no modules of NVIDIA"),
        ({"nvidia-uvm.ko": module()}, "found: nvidia-uvm.ko"),
        ({"nvidia.ko": module("580.126.09")}, "nvidia.ko is of driver 580.126.09, not 580.173.02"),
    ],
)
def test_wrong_modules_end_the_build_with_a_sentence(
    tmp_path: Path, files: dict[str, bytes], said: str
) -> None:
    (tmp_path / "tree").mkdir()
    for name, data in files.items():
        write(tmp_path / "tree/lib/modules" / KERNEL / name, data)
    done = place(tmp_path / "tree", tmp_path / "out")
    assert done.returncode != 0
    assert said in done.stderr
    assert not (tmp_path / "out").exists()
