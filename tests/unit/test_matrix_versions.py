"""Two driver rows of one version on one OS would share pins and stages, two of one branch the tag that the
operator pulls: they are refused unless they never meet.
"""

from __future__ import annotations

import pytest

from driverforge_build.matrix.load import Matrix, parse_matrix
from driverforge_core.errors import InputError

RUNFILE = (
    "branch: '535', version: 535.261.03, payload: runfile, url: 'https://mirror.site/a.run', "
    "module_types: [open]"
)


def drivers_of(system: str, *rows: str) -> Matrix:
    lines = [
        "extends: builtin",
        "systems:",
        f"  - id: {system}",
        "    drivers:",
        *(f"      - {{{row}}}" for row in rows),
    ]
    return parse_matrix("\n".join(lines).encode(), name="my.yaml")


def test_one_version_from_two_payloads_is_refused_whatever_images_the_rows_make() -> None:
    with pytest.raises(InputError) as caught:
        drivers_of(
            "debian12", "id: '535', variants: [precompiled]", f"id: 535-run, {RUNFILE}, variants: [jit]"
        )
    (line,) = caught.value.details
    assert line.startswith(
        "my.yaml:6: systems debian12: drivers 535 and 535-run are both 535.261.03 on amd64, arm64 (the "
        "other in line 5)"
    )


def test_the_problem_stands_in_the_sites_file_even_where_its_row_comes_first() -> None:
    text = "extends: builtin\nsystems: [{id: ubuntu24.04, drivers: [{id: '580', version: 580.173.02}]}]\n"
    with pytest.raises(InputError) as caught:
        parse_matrix(text.encode(), name="my.yaml")
    (line,) = caught.value.details
    assert line.startswith(
        "my.yaml:2: systems ubuntu24.04: drivers 580 and 580-server are both 580.173.02 on amd64, arm64 "
    )
    assert "(the other in matrix.yaml:" in line


def test_one_version_may_come_from_two_places_on_different_architectures() -> None:
    matrix = drivers_of("debian12", "id: '535', archs: [amd64]", f"id: 535-run, {RUNFILE}, archs: [arm64]")
    row = matrix.row("debian12")
    assert row is not None
    assert [driver.id for driver in row.drivers if driver.version == "535.261.03"] == ["535", "535-run"]


PRECOMPILED = "variants: [jit, precompiled]"
OLDER = RUNFILE.replace("535.261.03", "580.65.06").replace("'535'", "'580'")


def test_two_precompiled_drivers_of_one_branch_would_take_turns_behind_one_tag() -> None:
    with pytest.raises(InputError) as caught:
        drivers_of("ubuntu24.04", f"id: '580', {PRECOMPILED}")
    (line,) = caught.value.details
    assert line.startswith(
        "my.yaml:5: systems ubuntu24.04: drivers 580 and 580-server are both precompiled for kernels 6.8, "
        "hardware-enablement on amd64, arm64, under one tag for branch 580 (the other in matrix.yaml:"
    )


@pytest.mark.parametrize(
    ("system", "one", "two"),
    [
        ("ubuntu24.04", f"id: '580', {PRECOMPILED}, kernels: ['6.8']", "id: 580-server, kernels: ['hard*']"),
        ("ubuntu24.04", f"id: '580', {PRECOMPILED}, archs: [arm64]", "id: 580-server, archs: [amd64]"),
        # its tags have the whole version
        ("rhel9", f"id: '580', {PRECOMPILED}", f"id: 580-old, {PRECOMPILED}, {OLDER}"),
    ],
)
def test_two_drivers_of_one_branch_that_no_tag_confuses_may_both_be_precompiled(
    system: str, one: str, two: str
) -> None:
    assert drivers_of(system, one, two).row(system) is not None
