"""The shipped catalogue: facts that must not change by accident, and its own consistency."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from driverforge_build.matrix import DriverRow, OsRow, jit_cells, load_matrix
from driverforge_build.matrix.globs import matching
from driverforge_core.driverversion import DriverVersion
from driverforge_core.osid import OsId
from driverforge_core.tags import jit_tag
from driverforge_host.catalogue import GPUS, PROBES

MATRIX = load_matrix()
CELLS = {cell.key: cell for cell in jit_cells(MATRIX)}


def test_the_operating_systems_and_branches_of_the_product() -> None:
    assert {row.id for row in MATRIX.rows} >= {
        *("debian12", "debian13", "ubuntu22.04", "ubuntu24.04", "ubuntu26.04", "ol9", "sles15.7"),
        *("amzn2023", "sles15.6", "sles16.0"),
        *(f"{name}{major}" for name in ("rhel", "rocky") for major in (8, 9, 10)),
    }
    assert [branch.id for branch in MATRIX.branches] == [
        "470",
        "535",
        "550",
        "580",
        "595",
        "610",
        "615",
        "620",
    ]
    assert all(row.archs == ("amd64", "arm64") for row in MATRIX.rows)


@pytest.mark.parametrize(
    ("key", "payload", "module_types"),
    [
        ("debian12-amd64-535.261.03-jit", "packages", ("open", "proprietary")),
        ("debian12-amd64-470.256.02-jit", "packages", ("proprietary",)),
        ("debian13-amd64-550.163.01-jit", "packages", ("open", "proprietary")),
        ("debian13-amd64-535.274.02-jit", "packages", ("proprietary",)),
        ("debian12-arm64-580.178.04-jit", "runfile", ("open", "proprietary")),
        ("rocky8-arm64-610.57.04-jit", "runfile", ("open", "proprietary")),
        ("ubuntu26.04-amd64-595.91.07-jit", "runfile", ("open", "proprietary")),
    ],
)
def test_well_known_cells(key: str, payload: str, module_types: tuple[str, ...]) -> None:
    cell = CELLS[key]
    assert (cell.driver.payload, cell.module_types) == (payload, module_types)


def test_ubuntu_26_04_compiles_595_and_newer_and_red_hat_10_begins_at_580() -> None:
    jit = {driver.branch for driver in _drivers("ubuntu26.04") if "jit" in driver.variants}
    assert jit == {"595", "610", "615"}
    assert (
        {driver.branch for driver in _drivers("rhel10")}
        == {driver.branch for driver in _drivers("rocky10")}
        == {"580", "595", "610", "615"}
    )


def _drivers(key: str) -> tuple[DriverRow, ...]:
    row = MATRIX.row(key)
    assert row is not None
    return row.drivers


def test_the_address_of_a_runfile() -> None:
    assert CELLS["rhel9-arm64-580.178.04-jit"].driver.runfile_url("aarch64") == (
        "https://us.download.nvidia.com/tesla/580.178.04/NVIDIA-Linux-aarch64-580.178.04.run"
    )
    assert CELLS["debian12-amd64-535.261.03-jit"].driver.runfile_url("x86_64") == ""


def test_the_source_trees_of_debians_modules() -> None:
    driver = CELLS["debian12-amd64-535.261.03-jit"].driver
    trees = {source.id: driver.filled([source.tree])[0] for source in driver.modules}
    assert trees == {
        "open": "usr/src/nvidia-current-open-535.261.03",
        "proprietary": "usr/src/nvidia-current-535.261.03",
    }
    assert [source.packages for source in driver.modules if source.id == "open"] == [
        ("nvidia-open-kernel-dkms",)
    ]


def test_end_of_life_is_known_by_month() -> None:
    assert MATRIX.branch(535).ended("2026-07")
    assert not MATRIX.branch(535).ended("2026-06")
    assert MATRIX.branch(470).ended("2000-01")
    assert not MATRIX.branch(580).ended("2028-06")


def test_every_condition_of_an_exclusion_can_hold() -> None:
    flavours = {
        flavour
        for row in MATRIX.rows
        for line in row.kernels
        for names in line.flavours.values()
        for flavour in names
    }
    for exclusion in MATRIX.exclusions:
        assert matching(exclusion.systems, (row.id for row in MATRIX.rows))
        assert matching(exclusion.branches, (branch.id for branch in MATRIX.branches))
        # the flavour of an exclusion is one that no row offers: an exclusion explains, it does not undo
        assert not matching(exclusion.flavours, flavours)


def test_no_device_belongs_to_two_architectures() -> None:
    ranges = sorted((first, last, gpu.name) for gpu in GPUS for first, last in gpu.devices)
    for (_, last, name), (first, _, other) in pairwise(ranges):
        assert last < first, f"{name} and {other} overlap at {first:04x}"


@pytest.mark.parametrize(
    ("device", "name", "module_types", "newest_branch"),
    [
        (0x102D, "kepler", ("proprietary",), 470),  # K80
        (0x15F8, "pascal", ("proprietary",), 580),  # P100 PCIe
        (0x1DB4, "volta", ("proprietary",), 580),  # V100 PCIe
        (0x1EB8, "turing", ("open", "proprietary"), 620),  # T4
        (0x20B0, "ampere", ("open", "proprietary"), 620),  # A100 SXM4
        (0x2330, "hopper", ("open", "proprietary"), 620),  # H100 SXM5
        (0x2345, "grace-hopper", ("open",), 620),  # GH200 480GB
        (0x2335, "hopper", ("open", "proprietary"), 620),  # H200 SXM
        (0x26B9, "ada", ("open", "proprietary"), 620),  # L40S
        (0x2901, "blackwell", ("open",), 620),  # B200
    ],
)
def test_data_centre_gpus_and_what_drives_them(
    device: int, name: str, module_types: tuple[str, ...], newest_branch: int
) -> None:
    (gpu,) = (gpu for gpu in GPUS if any(first <= device <= last for first, last in gpu.devices))
    assert (gpu.name, gpu.module_types, max(gpu.branches)) == (name, module_types, newest_branch)


def test_the_node_knows_the_same_probes() -> None:
    assert [rule.id for rule in PROBES] == [probe.id for probe in MATRIX.probes]


def test_the_id_of_a_system_is_the_one_that_its_os_release_gives() -> None:
    assert all(OsId.parse(row.id).key == row.id for row in MATRIX.rows)


# no r12ab, which is a revision at the end of a tag
@given(st.from_regex(r"\A(sl-micro|opensuse-leap|[a-qs-z][a-z_]{0,9}[a-z])[0-9]{1,9}(\.[0-9]{1,9}){0,3}\Z"))
@example("sl-micro6.1")
@example("opensuse-leap15.6")
@example("sle_hpc15.6")
@example("amzn2023.12.20260817")
def test_a_row_may_be_of_any_system_that_core_and_tags_know(key: str) -> None:
    row = OsRow.model_validate({**MATRIX.rows[0].model_dump(), "id": key})
    assert str(jit_tag(580, OsId.parse(row.id))) == f"580-{OsId.parse(key).tag}"


@pytest.mark.parametrize("key", ["debian", "12", "d12", "Debian12", "sl-micro", "debian12-", "my-linux9"])
def test_a_row_of_no_system_is_refused(key: str) -> None:
    with pytest.raises(ValidationError, match=f"'{key}' "):
        OsRow.model_validate({**MATRIX.rows[0].model_dump(), "id": key})


def test_the_four_argument_pci_resize_resource_stops_open_modules_only() -> None:
    (rule,) = (rule for rule in PROBES if rule.id == "pci-resize-resource-4")
    assert rule.module_types == ("open",)
    assert {branch for branch, *_ in rule.drivers} >= {535, 550, 570}
    assert not any(branch >= 595 for branch, *_ in rule.drivers)


def test_versions_are_whole_driver_versions_of_their_branch() -> None:
    for row in MATRIX.rows:
        for driver in row.drivers:
            assert str(DriverVersion(driver.version).branch) == driver.branch
