"""From rows to cells."""

from __future__ import annotations

from itertools import islice

import pytest
from pydantic import ValidationError

from driverforge_build.matrix import Cell, Matrix, jit_cells, kernel_cells, load_matrix
from driverforge_build.matrix.expand import flavour_of
from driverforge_build.matrix.load import parse_matrix
from driverforge_build.matrix.model import DriverRow, Tools
from driverforge_build.matrix.repository import Repository
from driverforge_core.cell import CellId
from driverforge_core.kernel import KernelRelease


def site(text: str) -> Matrix:
    return parse_matrix(f"extends: builtin\n{text}".encode(), name="my.yaml")


def releases(*texts: str) -> list[KernelRelease]:
    return [KernelRelease.parse(text) for text in texts]


def keys(cells: tuple[Cell, ...] | list[Cell]) -> list[str]:
    return [cell.key for cell in cells]


DEBIAN12 = site("keep: {systems: [debian12], branches: ['535']}")
DEBIAN13 = site("keep: {systems: [debian13], branches: ['550']}")


def test_a_jit_cell_for_each_architecture() -> None:
    assert keys(jit_cells(DEBIAN12)) == ["debian12-amd64-535.261.03-jit", "debian12-arm64-535.261.03-jit"]
    assert all(
        cell.module_types == ("open", "proprietary") and cell.kernel is None for cell in jit_cells(DEBIAN12)
    )


def test_the_key_is_the_parsed_id() -> None:
    kernels = {("debian13", "amd64"): releases("6.12.94+deb13-cloud-amd64")}
    for cell in (*jit_cells(DEBIAN13), *kernel_cells(DEBIAN13, kernels)):
        assert str(cell.id) == cell.key
        assert CellId.parse(cell.key) == cell.id


def test_a_kernel_cell_for_each_kernel_of_a_flavour_of_the_row() -> None:
    kernels = {
        ("debian12", "amd64"): releases(
            "6.1.0-50-cloud-amd64",
            "6.1.0-50-rt-amd64",
            "6.12.95+deb12-amd64",
            "6.12.94+deb13-amd64",
            "5.10.0-9-amd64",
        ),
        ("debian12", "arm64"): releases("6.12.95+deb12-arm64-16k", "6.1.0-50-arm64"),
        ("debian13", "amd64"): releases("6.12.94+deb13-amd64"),
    }
    found = list(kernel_cells(DEBIAN12, kernels))
    assert keys(found) == [
        "debian12-amd64-535.261.03-6.1.0-50-cloud-amd64",
        "debian12-amd64-535.261.03-6.12.95+deb12-amd64",
        "debian12-arm64-535.261.03-6.1.0-50-arm64",
    ]
    assert [cell.series.id if cell.series else "" for cell in found] == ["6.1", "6.12", "6.1"]


def test_an_excluded_flavour_is_a_cell_with_its_reason_when_asked_for() -> None:
    kernels = {("debian12", "amd64"): releases("6.1.0-50-rt-amd64", "6.1.0-50-amd64")}
    found = list(kernel_cells(DEBIAN12, kernels, excluded=True))
    assert keys(found) == [
        "debian12-amd64-535.261.03-6.1.0-50-rt-amd64",
        "debian12-amd64-535.261.03-6.1.0-50-amd64",
    ]
    assert found[0].excluded is not None
    assert found[0].excluded.reason == "NVIDIA's build refuses kernels with PREEMPT_RT"
    assert found[1].excluded is None


REALTIME = {
    # real-time kernels as their distributions name them
    "debian12": "6.1.0-50-rt-amd64",
    "debian13": "6.12.94+deb13-rt-amd64",
    "ubuntu22.04": "5.15.0-1090-realtime",
    "ubuntu24.04": "6.8.1-1015-realtime",
    "ubuntu26.04": "7.0.0-1004-realtime",
    "rhel8": "4.18.0-553.81.1.rt7.422.el8_10.x86_64",
    "rhel9": "5.14.0-687.5.1.el9_8.x86_64+rt",
    "rocky10": "6.12.0-211.7.1.el10_2.x86_64+rt",
    "ol9": "5.14.0-687.5.1.el9_8.x86_64+rt",
    "sles15.7": "6.4.0-150700.7.10-rt",
}
MORE = [("ubuntu24.04", "6.8.0-2013-raspi-realtime"), ("sles15.7", "6.4.0-150700.7.10-rt_debug")]


@pytest.mark.parametrize(("system", "release"), [*REALTIME.items(), *MORE])
def test_a_real_time_kernel_of_a_series_version_is_excluded_whatever_its_name(
    system: str, release: str
) -> None:
    """Its name need not fit the series' glob, which is made for the flavours that are offered."""
    matrix = site(f"keep: {{systems: ['{system}']}}")
    kernels = {(system, "amd64"): releases(release)}
    told = {
        cell.excluded.id if cell.excluded else "" for cell in kernel_cells(matrix, kernels, excluded=True)
    }
    assert told == {"no-realtime"}
    assert list(kernel_cells(matrix, kernels)) == []


def exclusions(*types: str) -> str:
    rows = (
        f"{{id: 'no-{kind}', systems: [ubuntu24.04], flavours: [azure, gke], module_types: [{kind}], "
        "reason: r, source: s}"
        for kind in types
    )
    return f"keep: {{systems: [ubuntu24.04], branches: ['580']}}\nexclusions: [{', '.join(rows)}]"


@pytest.mark.parametrize(
    ("types", "release", "told"),
    [
        # a flavour that is offered, in a release that is not
        (("proprietary",), "6.8.1-1046-azure", set()),
        (("open", "proprietary"), "6.8.1-1046-azure", set()),
        (("open", "proprietary"), "6.8.0-1046-azure", {"no-open"}),
        # one that is not offered
        (("proprietary",), "6.8.0-1046-gke", set()),
        (("open", "proprietary"), "6.8.0-1046-gke", {"no-open"}),
        (("open", "proprietary"), "6.8.1-1046-gke", {"no-open"}),
    ],
)
def test_exclusions_block_a_flavour_where_they_leave_no_module_type(
    types: tuple[str, ...], release: str, told: set[str]
) -> None:
    kernels = {("ubuntu24.04", "amd64"): releases(release)}
    cells = list(kernel_cells(site(exclusions(*types)), kernels, excluded=True))
    assert {cell.excluded.id for cell in cells if cell.excluded} == told
    assert all(cell.excluded for cell in cells)


def test_a_flavour_of_another_series_is_refused_where_a_series_glob_fits() -> None:
    row = "{id: debian12, kernels: [{id: '6.12', flavours: {amd64: [amd64, rt-amd64]}}]}"
    matrix = site(f"keep: {{systems: [debian12], branches: ['535']}}\nsystems: [{row}]")
    kernels = {("debian12", "amd64"): releases("6.1.0-50-rt-amd64")}
    cells = list(kernel_cells(matrix, kernels, excluded=True))
    assert keys(cells) == ["debian12-amd64-535.261.03-6.1.0-50-rt-amd64"]


@pytest.mark.parametrize("release", ["6.5.0-1009-realtime", "16.8.0-1-realtime", "6.80.0-1-realtime"])
def test_a_real_time_kernel_of_no_series_is_no_cell(release: str) -> None:
    kernels = {("ubuntu24.04", "amd64"): releases(release)}
    assert list(kernel_cells(site("keep: {systems: [ubuntu24.04]}"), kernels, excluded=True)) == []


@pytest.mark.parametrize(
    ("glob", "release", "excluded"),
    [
        ("6.1?.*", "6.12.5-1-rt-amd64", True),
        ("6.*", "6.12.5-1-rt-amd64", True),
        ("6.*", "5.10.0-1-rt-amd64", False),
        ("6.1", "6.2.5-1-rt-amd64", False),
        ("6.1+deb*", "6.2.5-1-rt-amd64", False),
        ("6.1-*", "6.2.5-1-rt-amd64", False),
        ("*-amd64", "5.10.0-1-rt-amd64", True),
        ("{6.1,6.12}.*+x*", "6.12.5-1-rt-amd64", True),
        ("{6.1,6.12}.*+x*", "6.2.5-1-rt-amd64", False),
    ],
)
def test_the_version_of_a_series_is_what_its_glob_begins_with(
    glob: str, release: str, excluded: bool
) -> None:
    series = f"[{{id: '6.1', releases: '{glob}'}}, {{id: '6.12', remove: true}}]"
    row = f"systems: [{{id: debian12, kernels: {series}}}]"
    matrix = site(f"keep: {{systems: [debian12], branches: ['535']}}\n{row}")
    cells = list(kernel_cells(matrix, {("debian12", "amd64"): releases(release)}, excluded=True))
    assert bool(cells) is excluded


def test_an_exclusion_of_one_module_type_leaves_the_cell_with_the_other() -> None:
    text = (
        "exclusions: [{id: a, systems: [debian12], kernels: ['6.1.0-5[3-9]-*'], module_types: [open], "
        "reason: r, source: s}]"
    )
    matrix = site(f"keep: {{systems: [debian12], branches: ['535']}}\n{text}")
    kernels = {("debian12", "amd64"): releases("6.1.0-50-amd64", "6.1.0-53-amd64")}
    before, after = kernel_cells(matrix, kernels)
    assert before.module_types == ("open", "proprietary")
    assert before.dropped == ()
    assert after.module_types == ("proprietary",)
    assert [exclusion.id for exclusion in after.dropped] == ["a"]
    assert len(jit_cells(matrix)) == 2


def test_an_exclusion_without_kernel_conditions_takes_jit_cells_too() -> None:
    text = (
        "exclusions: [{id: no-arm, systems: ['debian*'], archs: [arm64], branches: ['535'], reason: r, "
        "source: s}]"
    )
    matrix = site(f"keep: {{systems: [debian12], branches: ['535']}}\n{text}")
    assert keys(jit_cells(matrix)) == ["debian12-amd64-535.261.03-jit"]
    assert [cell.excluded.id if cell.excluded else "" for cell in jit_cells(matrix, excluded=True)] == [
        "",
        "no-arm",
    ]


def test_rows_of_vendor_modules_have_no_jit_cells() -> None:
    matrix = site("keep: {systems: [ubuntu24.04], branches: ['580']}")
    kernels = {
        ("ubuntu24.04", "amd64"): releases("6.8.0-106-generic", "6.8.0-1046-azure-fde", "6.8.0-106-realtime")
    }
    assert {cell.driver.id for cell in jit_cells(matrix)} == {"580"}
    assert keys(list(kernel_cells(matrix, kernels))) == [
        "ubuntu24.04-amd64-580.173.02-6.8.0-106-generic",
        "ubuntu24.04-amd64-580.173.02-6.8.0-1046-azure-fde",
    ]


@pytest.mark.parametrize(
    ("release", "flavour"),
    [
        ("6.1.0-50-cloud-amd64", "cloud-amd64"),
        ("6.8.0-1046-azure-fde", "azure-fde"),
        ("5.14.0-427.el9.aarch64+64k", "64k"),
        ("5.14.0-427.el9.x86_64", "default"),
        ("5.14.0-503.11.1.el9_5.x86_64+rt", "rt"),
        ("6.4.0-150700.53.19-default", "default"),
    ],
)
def test_flavours_as_the_matrix_names_them(release: str, flavour: str) -> None:
    assert flavour_of(KernelRelease.parse(release)) == flavour


@pytest.mark.parametrize(
    ("system", "arch", "release", "line", "headers"),
    [
        (
            "rhel9",
            "arm64",
            "5.14.0-427.el9.aarch64+64k",
            "5.14-64k",
            ("kernel-64k-devel-5.14.0-427.el9.aarch64",),
        ),
        (
            "rhel9",
            "arm64",
            "5.14.0-427.el9.aarch64",
            "5.14",
            ("kernel-devel-5.14.0-427.el9.aarch64", "kernel-headers-5.14.0-427.el9.aarch64"),
        ),
        ("debian13", "amd64", "7.2.11+deb13-amd64", "7", ("linux-headers-7.2.11+deb13-amd64",)),
        (
            "sles15.7",
            "amd64",
            "6.4.0-150700.53.19-default",
            "6.4",
            ("kernel-default-devel", "kernel-devel", "kernel-macros"),
        ),
    ],
)
def test_the_header_packages_of_a_kernel(
    system: str, arch: str, release: str, line: str, headers: tuple[str, ...]
) -> None:
    found = kernel_cells(site(""), {(system, arch): [KernelRelease.parse(release)]})
    assert {(cell.series.id, cell.series.header_packages(release)) for cell in found if cell.series} == {
        (line, headers)
    }


def test_cells_are_made_one_by_one() -> None:
    def endless() -> object:
        number = 0
        while True:
            yield KernelRelease.parse(f"6.1.0-{(number := number + 1)}-amd64")

    found = islice(kernel_cells(DEBIAN12, {("debian12", "amd64"): endless()}), 3)  # type: ignore[dict-item]
    assert [cell.key.rpartition("-6.1.0-")[2] for cell in found] == ["1-amd64", "2-amd64", "3-amd64"]


def test_ten_thousand_cells_share_their_rows() -> None:
    kernels = {
        ("debian12", arch): releases(*(f"6.1.0-{number}-{arch}" for number in range(5_000)))
        for arch in ("amd64", "arm64")
    }
    found = list(kernel_cells(DEBIAN12, kernels))
    assert len(found) == 10_000
    assert len({id(cell.os) for cell in found}) == len(("amd64", "arm64"))


def test_a_row_as_an_architecture_sees_it() -> None:
    row = next(row for row in load_matrix().rows if row.drivers and row.kernels)
    ids, packages = ("site-{machine}",), ("both", "here [arm64]", "there [amd64]")
    driver = row.drivers[0].model_copy(
        update={"repositories": ids, "userspace": packages, "companions": packages}
    )
    seen = row.model_copy(
        update={
            "repositories": (Repository(id=ids[0]),),
            "kernels": (row.kernels[0].model_copy(update={"repositories": ids}),),
            "tools": Tools(runtime=packages, jit=packages),
            "drivers": (driver,),
        }
    ).on("arm64")
    mine, own = ("both", "here"), ("site-aarch64",)
    assert [one.id for one in seen.repositories] == [*own]
    assert (seen.kernels[0].repositories, seen.drivers[0].repositories) == (own, own)
    assert (seen.tools.runtime, seen.tools.jit) == (mine, mine)
    assert (seen.drivers[0].userspace, seen.drivers[0].companions) == (mine, mine)


@pytest.mark.parametrize("name", ["a [riscv64]", "a[amd64]", "a [amd64] [arm64]", "[amd64]"])
def test_an_architecture_that_nobody_knows_is_no_limit(name: str) -> None:
    with pytest.raises(ValidationError, match="is not a package name"):
        Tools(runtime=(name,))


@pytest.mark.parametrize("name", ["", "two words", "a/b", "-x", "$releasever"])
def test_what_is_no_repositorys_id(name: str) -> None:
    with pytest.raises(ValidationError, match="is not a repository's id"):
        Repository(id=name)


def test_a_driver_names_each_repository_once() -> None:
    row = next(row for row in load_matrix().rows if row.drivers).drivers[0]
    with pytest.raises(ValidationError, match="twice"):
        DriverRow.model_validate({**row.model_dump(), "repositories": ["a", "a"]})
