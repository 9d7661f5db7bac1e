"""An operating system that is `like` another of its distribution: its own suites, its own kernels, and errors
at its own lines.
"""

from __future__ import annotations

import pytest

from driverforge_build import resources
from driverforge_build.matrix.load import Matrix, parse_matrix
from driverforge_core.errors import InputError
from support.samples.synthetic import all_cells, release_of, synthetic_lock

NEWER = """\
extends: builtin
branches:
  - {id: "550", systems: [{id: debian, oldest: "13", newest: "99"}]}
keep: {systems: [debian99], branches: ["550"]}
systems:
  - id: debian99
    like: debian13
    name: Debian 99 (zurg)
    codename: zurg
    base: debian:zurg-slim
    repositories:
      - {id: zurg-backports, remove: true}
      - {id: cuda-debian13, remove: true}
    fabric:
      - {id: "590", remove: true}
    kernels:
      - {id: "6.12", remove: true}
      - id: "7"
        releases: "7.*+deb99*"
        repositories: [zurg, zurg-updates, zurg-security]
        compilers: [gcc-16]
    drivers:
      - {id: "535", remove: true}
      - {id: "550", kernels: ["7"]}
"""


def site(text: str) -> Matrix:
    return parse_matrix(text.encode(), name="my.yaml")


def problems(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        site(text)
    return list(caught.value.details)


def test_its_suites_have_its_own_code_name() -> None:
    row = site(NEWER).row("debian99")
    assert row is not None
    assert [(one.id, one.archive, one.role) for one in row.repositories] == [
        ("zurg", "debian", "main"),
        ("zurg-updates", "debian", "updates"),
        ("zurg-security", "debian-security", "security"),
    ]
    assert {name for driver in row.drivers for name in driver.repositories} == {"zurg"}


def test_kernels_that_it_takes_over_are_offered_by_its_own_suites() -> None:
    text = NEWER.replace("        repositories: [zurg, zurg-updates, zurg-security]\n", "")
    text = text.replace("      - {id: zurg-backports, remove: true}\n", "      - {id: zurg, role: main}\n")
    row = site(text).row("debian99")
    assert row is not None
    assert [series.repositories for series in row.kernels] == [("zurg-backports",)]


def test_the_row_that_it_is_like_keeps_its_suites() -> None:
    row = site(NEWER.replace("[debian99]", "[debian13, debian99]")).row("debian13")
    assert row is not None
    assert row.repositories[0].id == "trixie"


def test_a_repository_that_it_names_by_the_others_name_stays_what_it_was() -> None:
    text = NEWER.replace("zurg-backports, remove: true", "trixie-backports, remove: true")
    row = site(text).row("debian99")
    assert row is not None
    assert [one.id for one in row.repositories] == ["zurg", "zurg-updates", "zurg-security"]


def test_a_new_series_has_a_synthetic_release() -> None:
    matrix = site(NEWER)
    assert {cell.key for cell in all_cells(matrix) if cell.kernel and cell.arch == "amd64"} == {
        f"debian99-amd64-550.163.01-{release_of(matrix.rows[0].kernels[0], 'amd64')}"
    }
    (release,) = synthetic_lock(matrix).targets["debian99-arm64"].kernels
    assert release.startswith("7.")
    assert "+deb99" in release


@pytest.mark.parametrize(
    ("instead", "problem"),
    [
        ("    codename: zurg\n", "codename: trixie is debian13's; write the code name of debian99"),
        (
            "    base: debian:zurg-slim\n",
            "base: debian:trixie-slim is debian13's; write the image of debian99",
        ),
        (
            "    name: Debian 99 (zurg)\n",
            "name: Debian 13 (trixie) is debian13's; write the name of debian99",
        ),
    ],
)
def test_what_no_two_systems_share_is_not_taken_over(instead: str, problem: str) -> None:
    assert f"my.yaml:7: systems debian99: {problem}" in problems(NEWER.replace(instead, ""))


def test_a_problem_in_what_it_takes_over_is_told_at_its_like_with_the_place_that_it_comes_from() -> None:
    (found,) = problems(NEWER.replace('      - {id: "550", kernels: ["7"]}\n', ""))
    text = resources.builtin_matrix().read_text(encoding="utf-8").splitlines()
    place, told = found.split(": systems debian99 drivers 550: ")
    assert place == "my.yaml:7"
    said, _, origin = told.removesuffix(")").partition(" (taken over from matrix.yaml:")
    assert said == "'6.12' matches none of the OS's kernels; known: 7"
    assert text[int(origin) - 1].strip() == 'kernels: ["6.12"]'


def test_a_branch_that_is_not_offered_for_it_is_told_at_its_own_row() -> None:
    (found,) = problems(NEWER.replace('newest: "99"', 'newest: "13"'))
    assert found.startswith(
        "my.yaml:24: systems debian99 drivers 550: branch 550 is not offered for debian99"
    )


def test_a_row_that_is_like_one_with_a_wrong_id_is_judged_with_it() -> None:
    text = (
        "extends: builtin\nsystems:\n  - {id: d12, like: debian12}\n  - {id: alma9, like: d12, base: Alma}\n"
    )
    assert [line.partition(";")[0] for line in problems(text)] == [
        "my.yaml:3: id: 'd12' is not an OS id",
        "my.yaml:4: base: 'Alma' is not an image reference",
    ]
    (wrong,) = problems(text.replace(", base: Alma", ""))
    assert wrong.startswith("my.yaml:3: id: 'd12' is not an OS id")
