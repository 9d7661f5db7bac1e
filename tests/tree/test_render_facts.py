"""join-facts, the script in a build upon a driver image: what an image says of itself whose base is ours."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.render.spec import FILE_TIME
from driverforge_core.driverversion import DriverVersion
from driverforge_core.image import ImageFacts
from driverforge_core.kernel import KernelRelease
from driverforge_core.osid import OsId

SCRIPT = resources.templates() / "scripts/join-facts"
LIBRARY = Path(__file__).parents[2] / "entrypoints"
OLD, NEW = (KernelRelease.parse(f"6.1.0-{number}-cloud-amd64") for number in (50, 53))
OWN = ImageFacts(
    os=OsId.parse("debian12"),
    arch="amd64",
    driver=DriverVersion("580.178.04"),
    payload="image",
    module_types=("open",),
    variant="precompiled",
    kernels=(NEW,),
    sources={},
    firmware="/opt/driverforge/firmware",
    source_digests={"open": "sha256:" + "1" * 64},
)
JIT = replace(
    OWN,
    payload="runfile",
    module_types=("open", "proprietary"),
    variant="jit",
    kernels=(),
    sources={kind: f"/usr/src/{kind}" for kind in ("open", "proprietary")},
    source_digests=dict.fromkeys(("open", "proprietary"), "sha256:" + "2" * 64),
    source_versions={"open": "580.178.04-1"},
)


def joined(folder: Path, base: ImageFacts | None) -> ImageFacts:
    """Run the script with our library in the place of the image's."""
    text = SCRIPT.read_text().replace("/opt/driverforge/lib", str(LIBRARY))
    if base:
        (folder / "base.json").write_text(base.to_json())
    (folder / "own.json").write_text(OWN.to_json())
    output = folder / "out/opt/driverforge/image.json"
    words = [sys.executable, "-I", "-c", text, folder / "base.json", folder / "own.json", output]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(FILE_TIME)}
    subprocess.run(words, env=environment, check=True)
    assert {path.stat().st_mtime for path in (output, output.parent)} == {FILE_TIME}
    return ImageFacts.from_json(output.read_text())


def test_a_base_that_is_not_ours_leaves_the_image_as_it_is(tmp_path: Path) -> None:
    assert joined(tmp_path, None) == OWN


def test_the_modules_of_the_base_are_still_there(tmp_path: Path) -> None:
    base = replace(OWN, kernels=(OLD,), module_types=("proprietary",))
    assert joined(tmp_path, base) == replace(OWN, kernels=(OLD, NEW), module_types=("open", "proprietary"))
    assert joined(tmp_path, OWN) == OWN


def test_an_image_upon_a_jit_image_compiles_for_other_kernels_as_that_one_did(tmp_path: Path) -> None:
    found = joined(tmp_path, JIT)
    assert (found.variant, found.kernels, found.payload) == ("jit", (NEW,), "image")
    assert (found.sources, found.source_digests) == (JIT.sources, JIT.source_digests)
    assert found.source_versions == JIT.source_versions
    assert found.module_types == ("open", "proprietary")


@pytest.mark.parametrize("other", ["driver", "os"])
def test_what_the_base_says_of_another_driver_or_system_does_not_count(tmp_path: Path, other: str) -> None:
    changed = {"driver": DriverVersion("580.65.06")} if other == "driver" else {"os": OsId.parse("debian13")}
    assert joined(tmp_path, replace(JIT, **changed)) == OWN  # type: ignore[arg-type]
