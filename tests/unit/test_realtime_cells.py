"""Cells of real-time kernels: none as shipped, and with the matrix of docs/matrix.md builds that say so."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_build.discover.machine import Machine
from driverforge_build.discover.rpm.places import locate
from driverforge_build.discover.settings import Settings
from driverforge_build.matrix import Cell, Matrix, jit_cells, kernel_cells, load_matrix
from driverforge_build.matrix.fields import Arch
from driverforge_build.matrix.load import parse_matrix
from driverforge_build.render.context import context_of
from driverforge_build.render.spec import image_specs
from driverforge_build.verdict.decide import Judge
from driverforge_build.verdict.verdicts import State
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


def of_rhel() -> Matrix:
    """The page's example, with its lines for RHEL."""
    found = re.search(r"```yaml\n(# realtime-rhel\.yaml\n.*?)```", PAGE, re.DOTALL)
    assert found
    return parse_matrix(found[1].encode(), name="realtime-rhel.yaml")


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


def test_rhels_come_from_its_own_repository_and_other_systems_stay_as_shipped() -> None:
    found = cells(of_rhel(), "rhel9", RED_HATS)
    assert {cell.excluded for cell in found} == {None}
    series = found[0].series
    assert series is not None
    repository = "rhel-9-for-x86_64-rt-rpms"
    assert repository in series.repositories
    assert [one.entitled for one in found[0].os.repositories if one.id == repository] == [True]
    others = kernel_cells(of_rhel(), {("debian12", "amd64"): [KernelRelease.parse(REALTIME)]}, excluded=True)
    assert {cell.excluded.id if cell.excluded else "" for cell in others} == {"no-realtime"}


def warnings(matrix: Matrix, cell: Cell, release: str) -> list[str]:
    lock = synthetic_lock(matrix)
    target = lock.targets["debian12-amd64"]
    kernel = replace(next(iter(target.kernels.values())), release=release)
    lock = lock.with_targets([replace(target, kernels={release: kernel})])
    told = Judge(matrix, lock, today=date(2026, 1, 1)).verdict(cell)
    assert told.state is State.BUILD
    return [warning for warning in told.warnings if "real-time" in warning]


def test_a_plan_warns_of_what_nvidia_does_not_support() -> None:
    site = of_the_page()
    (warning,) = warnings(site, cells(site, "debian12", REALTIME)[-1], REALTIME)
    assert "NVIDIA does not support" in warning
    assert warnings(site, cells(site, "debian12", USUAL)[-1], USUAL) == []


def test_jit_images_say_what_their_real_time_nodes_need() -> None:
    def of(matrix: Matrix) -> Cell:
        return with_synthetic_runfile(next(one for one in jit_cells(matrix) if one.os.id == "debian12"))

    (warning,) = warnings(of_the_page(), of(of_the_page()), USUAL)
    assert "IGNORE_PREEMPT_RT_PRESENCE=1" in warning
    assert warnings(load_matrix(), of(load_matrix()), USUAL) == []
