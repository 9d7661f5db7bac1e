"""A copy's progress where no terminal is, as a pipeline's log has it; the clock is given."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from driverforge_build.commands.mirror.copyprogress import rate_text, shown_copy
from driverforge_core.errors import Unavailable
from driverforge_mirror.copying.copier import Copied
from driverforge_mirror.lists.loads import Load
from driverforge_oci.client import digest_of
from driverforge_oci.reference import Reference

MB = 10**6


@dataclass(slots=True)
class Clock:
    seconds: float = 100.0

    def now(self) -> float:
        return self.seconds


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def a_copy(clock: Clock, *, as_json: bool) -> None:
    """3 GB, of which 1 GB is there: 50 MB move in each second of 12, then 400 MB in the next 9."""
    with shown_copy(as_json=as_json, now=clock.now) as progress:
        progress.begins(3000 * MB)
        progress.settled(1000 * MB, told=0)
        for _ in range(12):
            clock.seconds += 1
            progress.moved(50 * MB)
        clock.seconds += 9
        progress.moved(400 * MB)


def test_lines_tell_bytes_rate_and_time_left_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    a_copy(Clock(), as_json=False)
    # of what moved, not of what was there
    assert told(capsys) == ["1.50 of 3.00 GB, 50 MB/s, 30 s left", "2.00 of 3.00 GB, 48 MB/s, 21 s left"]


def test_events_have_the_same_as_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    a_copy(Clock(), as_json=True)
    assert [json.loads(line) for line in told(capsys)] == [
        {"event": "copy", "bytes": 1500 * MB, "total": 3000 * MB, "rate": 50 * MB},
        {"event": "copy", "bytes": 2000 * MB, "total": 3000 * MB, "rate": 47_619_048},
    ]


@pytest.mark.parametrize(
    ("done", "total", "rate", "text"),
    [
        (0, 0, 0.0, "0.00 of 0.00 GB, 0 MB/s"),
        (0, 5 * MB, 0.0, "0.00 of 0.01 GB, 0 MB/s"),
        (5000 * MB, 5000 * MB, 45.0 * MB, "5.00 of 5.00 GB, 45 MB/s"),
        (1200 * MB, 5600 * MB, 44.9 * MB, "1.20 of 5.60 GB, 45 MB/s, 98 s left"),
    ],
)
def test_time_left_is_told_where_there_is_a_rate_and_something_left(
    done: int, total: int, rate: float, text: str
) -> None:
    assert rate_text(done, total, rate) == text


def test_bytes_that_moved_twice_are_not_done_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """A blob began anew, and what was sent of it before is told too: the rate is the network's."""
    clock = Clock()
    with shown_copy(as_json=True, now=clock.now) as progress:
        progress.begins(150 * MB)
        progress.moved(100 * MB)
        clock.seconds += 10
        progress.moved(60 * MB)
        clock.seconds += 10
        progress.settled(100 * MB, told=160 * MB)
    first, last = (json.loads(line) for line in told(capsys))
    assert (first["bytes"], first["rate"]) == (150 * MB, 16 * MB)
    assert (last["bytes"], last["rate"]) == (100 * MB, 8 * MB)


@pytest.mark.parametrize("as_json", [False, True])
def test_each_image_and_each_pause_is_told_at_once(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    place, failed = Reference.parse("mirror.site/driver:1"), Unavailable("mirror.site answers 418")
    load = Load(
        image="nvcr.io/nvidia/driver:1",
        digest=digest_of(b""),
        source=place,
        place=place,
        manifests={},
        blobs={},
    )
    with shown_copy(as_json=as_json, now=Clock().now) as progress:
        progress.waiting("mirror.site answers 429", 1.25)
        progress.copied(Copied(load=load, state="copied"))
        progress.copied(Copied(load=load, state="failed", error=failed))
    lines = told(capsys)
    if not as_json:
        assert lines == [
            "mirror.site answers 429; again in 1.2 s",
            "nvcr.io/nvidia/driver:1 copied",
            "nvcr.io/nvidia/driver:1 failed: mirror.site answers 418",
        ]
        return
    image = {"event": "image", "image": load.image}
    assert [json.loads(line) for line in lines] == [
        {"event": "waiting", "why": "mirror.site answers 429", "seconds": 1.2},
        {**image, "state": "copied", "error": ""},
        {**image, "state": "failed", "error": "mirror.site answers 418"},
    ]
