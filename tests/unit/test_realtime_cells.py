"""Cells of real-time kernels: none as shipped, and with the matrix of docs/matrix.md builds that say so."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.discover.machine import Machine
from driverforge_build.discover.rpm.places import locate
from driverforge_build.discover.settings import Settings
from driverforge_build.matrix import Cell, Matrix, kernel_cells, load_matrix
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.load import parse_matrix
from driverforge_build.render.context import context_of
from driverforge_build.render.spec import image_specs
from driverforge_core.kernel import KernelRelease
from support.samples.synthetic import synthetic_lock, with_synthetic_runfile

PAGE = (Path(__file__).parents[2] / "docs/matrix.md").read_text()
USUAL, REALTIME = "6.1.0-50-cloud-amd64", "6.1.0-50-rt-amd64"
RED_HATS = "5.14.0-503.14.1.el9_5.x86_64+rt"
WORD = "IGNORE_PREEMPT_RT_PRESENCE=1 driverctl build --kernel"


def of_the_page() -> Matrix:
    found = re.search(r"```yaml\n(# realtime\.yaml\n.*?)```", PAGE, re.DOTALL)
    assert found
    return parse_matrix(found[1].encode(), name="realtime.yaml")


def cells(matrix: Matrix, system: str, release: str) -> list[Cell]:
    found = kernel_cells(matrix, {(system, "amd64"): [KernelRelease.parse(release)]})
    return [with_synthetic_runfile(cell) for cell in found]


def dockerfile(matrix: Matrix, system: str, release: str) -> str:
    """That of the first cell, with pins that are made of names."""
    lock = synthetic_lock(matrix)
    target = lock.targets[f"{system}-amd64"]
    kernel = replace(next(iter(target.kernels.values())), release=release)
    lock = lock.with_targets([replace(target, kernels={release: kernel})])
    (image,) = image_specs(cells(matrix, system, release)[:1], lock)
    return context_of(image, resources.templates()).entries["Dockerfile"].content.decode()


@pytest.mark.parametrize(("system", "release"), [("debian12", REALTIME), ("rocky9", RED_HATS)])
def test_they_are_built_where_a_site_says_so_and_not_as_shipped(system: str, release: str) -> None:
    assert cells(load_matrix(), system, release) == []
    assert {cell.excluded for cell in cells(of_the_page(), system, release)} == {None}
    assert f"{WORD} {release} " in dockerfile(of_the_page(), system, release)


def test_the_builds_of_other_kernels_do_not_ignore_what_nvidia_checks() -> None:
    text = dockerfile(of_the_page(), "debian12", USUAL)
    assert f" driverctl build --kernel {USUAL} " in text
    assert "IGNORE_PREEMPT_RT_PRESENCE" not in text


@pytest.mark.parametrize(("arch", "read"), [("amd64", True), ("arm64", False)])
def test_the_repository_of_red_hats_is_read_for_the_architecture_that_has_it(arch: Arch, read: bool) -> None:
    (row,) = (row for row in of_the_page().rows if row.id == "rocky9")
    settings = Settings(now=datetime(2026, 11, 20, tzinfo=timezone.utc), machine=Machine())
    places = {place.id: place.uri for place in locate(row.on(arch), arch, settings)}
    assert {"baseos", "appstream"} <= places.keys()
    assert places.get("rt", "") == ("https://mirror.site/rocky/9/RT/x86_64/os" if read else "")


def test_red_hats_have_their_own_packages() -> None:
    series = cells(of_the_page(), "rocky9", RED_HATS)[0].series
    assert series is not None
    plain = RED_HATS.partition("+")[0]
    assert series.header_packages(RED_HATS) == (f"kernel-rt-devel-{plain}",)
