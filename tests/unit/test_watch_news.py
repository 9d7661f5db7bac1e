"""What counts as news of an OS and architecture."""

from __future__ import annotations

from dataclasses import replace

from driverforge_build.app.watch import News, TargetNews, target_news
from driverforge_build.nvidia.advisories import Vulnerability
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


def test_what_was_read_is_the_repositories_and_nvidias_list() -> None:
    now, kept = LastRead(fresh=True, time="2026-11-20T12:00:00Z"), LastRead(fresh=False, time="")
    targets = {"debian12-amd64": {"bookworm": now}}
    assert News(since="", last_read=targets, releases=kept).reads == [now, kept]
    # no answer has no date
    assert News(since="", last_read=targets).reads == [now]
