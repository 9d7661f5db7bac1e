"""Known vulnerabilities of drivers, out of two bulletins of NVIDIA's as they are published (cut)."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from driverforge_build.nvidia.advisories import Advisories, read_advisories
from driverforge_build.verdict.decide import Judge
from driverforge_core.driverversion import DriverVersion
from driverforge_core.errors import InputError
from support.samples.locks import sample_driver, target
from support.samples.sampledebian import sample_matrix

CASES = Path(__file__).parents[1] / "cases/advisories"


@pytest.fixture(scope="module")
def both() -> Advisories:
    return read_advisories([CASES])


@pytest.mark.parametrize(
    ("driver", "cves"),
    [
        # fixed in 535.309.01, by the bulletin of May 2026; CVE-2026-24191 is one of Windows alone
        ("535.261.03", ["CVE-2026-24187", "CVE-2026-24190", "CVE-2026-24192"]),
        ("535.309.01", []),
        ("580.142", ["CVE-2026-24187", "CVE-2026-24190", "CVE-2026-24192"]),
        # the drivers of vGPU guests have other numbers: 580.126.09 is the last affected one there
        ("580.159.03", []),
        ("595.71.04", ["CVE-2026-24187", "CVE-2026-24190", "CVE-2026-24192"]),
        ("570.133.20", ["CVE-2025-23279"]),
        # no bulletin judges it any more, or yet
        ("550.163.01", []),
        ("615.71.09", []),
    ],
)
def test_a_driver_has_what_a_later_one_of_its_branch_fixed(
    both: Advisories, driver: str, cves: list[str]
) -> None:
    assert sorted(one.cve for one in both.of(DriverVersion(driver))) == cves


def test_a_driver_of_before_two_bulletins_has_what_both_fixed_the_worst_first(both: Advisories) -> None:
    found = both.of(DriverVersion("535.216.01"))
    assert {one.bulletin for one in found} == {"5670", "5821"}
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert both.told(DriverVersion("535.216.01")) == (
        "driver 535.216.01 has 4 known vulnerabilities, the worst CVE-2026-24187 (8.8): 535.309.01 has none "
        "of them (NVIDIA's bulletin 5821)"
    )
    assert both.told(DriverVersion("535.309.01")) == ""


def test_a_plan_warns_of_them_and_decides_nothing_by_them(both: Advisories) -> None:
    from driverforge_build.lock.pins import Lock
    from driverforge_build.plan.rows import all_cells

    matrix = sample_matrix()
    lock = Lock(targets={"debian12-amd64": target(drivers={"535.261.03": sample_driver()})})
    (cell,) = [cell for cell in all_cells(matrix, lock) if cell.key == "debian12-amd64-535.261.03-jit"]
    day = date(2026, 5, 1)
    plain = Judge(matrix, lock, today=day).verdict(cell)
    warned = Judge(matrix, lock, today=day, advisories=both).verdict(cell)
    assert warned.state is plain.state
    assert {*warned.warnings} - {*plain.warnings} == {both.told(DriverVersion("535.261.03"))}


def test_records_of_another_format_beside_advisories_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "CVE-2026-24187.json").write_text('{"dataType": "CVE_RECORD"}')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "5821.json").write_bytes((CASES / "5821.json").read_bytes())
    assert read_advisories([tmp_path]).of(DriverVersion("535.261.03"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "is not a CSAF 2 document"),
        ('{"document": {"csaf_version": "1.2"}}', "is not a CSAF 2 document"),
        ('{"document": {"csaf_version": "2.0"}}', "not as NVIDIA writes them"),
    ],
)
def test_a_file_that_is_no_advisory_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=told):
        read_advisories([tmp_path / "a.json"])


def test_ids_that_no_advisory_explains_say_nothing(tmp_path: Path) -> None:
    document = json.loads((CASES / "5821.json").read_text())
    document["product_tree"]["branches"] = []
    (tmp_path / "a.json").write_text(json.dumps(document))
    assert read_advisories([tmp_path]).known == ()
