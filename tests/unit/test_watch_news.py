"""What counts as news of an OS and architecture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from driverforge_build.app.watch import News, TargetNews, rows_for, target_news
from driverforge_build.matrix import load_matrix
from driverforge_build.matrix.expand import jit_cells
from driverforge_build.nvidia.advisories import Vulnerability
from driverforge_build.nvidia.releases import Release
from driverforge_build.ports import LastRead
from driverforge_core.driverversion import DriverVersion
from support.samples.locks import kernel, package, target


def test_kernels_come_and_go_and_get_finished_modules() -> None:
    vendor = {"580.173.02": (package("linux-modules-nvidia"),)}
    before = target(kernel("6.1.0-50"), kernel("6.1.0-51"))
    after = target(replace(kernel("6.1.0-51"), vendor=vendor), replace(kernel("6.1.0-56"), vendor=vendor))
    assert target_news(before, after) == TargetNews(
        kernels=("6.1.0-56",), gone=("6.1.0-50",), modules=(("6.1.0-51", "580.173.02"),)
    )
    assert target_news(after, before).modules == ()
    assert target_news(before, after, older=["6.1.0-50"]).gone == ()


def test_nothing_is_no_news() -> None:
    same = target(kernel("6.1.0-50"))
    assert not target_news(same, same)
    assert not News(since="", targets={"debian12-amd64": TargetNews()})
    assert News(since="", targets={"debian12-amd64": TargetNews(gone=("6.1.0-50",))})
    known = Vulnerability(cve="CVE-1", score=0, fixed=DriverVersion("535.309.01"), bulletin="1")
    assert News(since="", vulnerable={"535.261.03": (known,)})


def test_the_rows_for_new_branches_make_a_matrix_that_has_their_drivers(tmp_path: Path) -> None:
    """One that the catalogue has without a version, and one that it does not know."""
    builtin = load_matrix()
    releases = [
        Release(version=DriverVersion(version), date="", kind=kind)
        for version, kind in (("620.70.06", "lts branch"), ("630.12.03", 'production: "branch"'))
    ]
    rows = rows_for(releases, builtin, ["debian12", "rocky9"])
    (tmp_path / "site.yaml").write_text(f"extends: builtin\n{rows}\n")
    made = load_matrix(tmp_path / "site.yaml")
    new = {cell.key for cell in jit_cells(made)} - {cell.key for cell in jit_cells(builtin)}
    assert {key.split("-")[2] for key in new} == {"620.70.06", "630.12.03"}
    assert {key.split("-")[0] for key in new} == {"debian12", "rocky9"}
    assert made.branch("630").designation == 'production: "branch"'
    assert made.branch("630").eol is None
    assert rows_for([], builtin, ["debian12"]) == ""


def test_what_was_read_is_the_repositories_and_nvidias_list() -> None:
    now, kept = LastRead(fresh=True, time="2026-11-20T12:00:00Z"), LastRead(fresh=False, time="")
    targets = {"debian12-amd64": {"bookworm": now}}
    assert News(since="", last_read=targets, releases=kept).reads == [now, kept]
    # no answer has no date
    assert News(since="", last_read=targets).reads == [now]
