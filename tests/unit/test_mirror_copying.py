"""Parts of a copy: a gate that changes its width, streams that break, tar files written in any order."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from driverforge_core.errors import InputError, StorageFailed, TemporaryFailure, Unavailable
from driverforge_mirror.archive.volumes import Volumes, file_sum, plan_tar, volume_sizes
from driverforge_mirror.copying.stream import BREAKS, BlobStream
from driverforge_mirror.copying.tide import PERIOD_S, Tide
from driverforge_mirror.lists.reader import load_archive_list

DATA = bytes(range(256)) * 40
DIGEST = "sha256:" + hashlib.sha256(DATA).hexdigest()


class Breaking:
    """Gives bytes from an offset, `each` at a time, and breaks after `after` of them."""

    def __init__(self, data: bytes, *, after: int, each: int = 100) -> None:
        self.data, self.after, self.each = data, after, each
        self.opened: list[int] = []

    def open(self, offset: int) -> Any:
        self.opened.append(offset)
        return _Body(self, offset)


class _Body:
    def __init__(self, source: Breaking, offset: int) -> None:
        self.source, self.offset, self.given = source, offset, 0

    def read(self, size: int, /) -> bytes:
        if self.given >= self.source.after:
            raise TemporaryFailure("the connection broke")
        piece = self.source.data[self.offset : self.offset + min(size, self.source.each)]
        self.offset += len(piece)
        self.given += len(piece)
        return piece

    def close(self) -> None: ...


def whole(stream: BlobStream) -> bytes:
    return b"".join(iter(lambda: stream.read(1 << 20), b""))


def test_a_stream_goes_on_where_the_connection_broke() -> None:
    source = Breaking(DATA, after=3000)
    assert whole(BlobStream(source.open, DIGEST, len(DATA))) == DATA
    assert source.opened == [0, 3000, 6000, 9000]


def test_a_stream_that_comes_no_further_is_an_error() -> None:
    source = Breaking(DATA, after=0)
    with pytest.raises(TemporaryFailure, match="broke"):
        BlobStream(source.open, DIGEST, len(DATA)).read(10)
    assert len(source.opened) == BREAKS


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (DATA[:-1], TemporaryFailure, "ends after"),
        (DATA + b"x", Unavailable, "more than"),
        (DATA[:-1] + b"x", TemporaryFailure, "not those of its digest"),
    ],
)
def test_other_bytes_than_the_digests_are_no_blob(data: bytes, error: type[Exception], text: str) -> None:
    stream = BlobStream(Breaking(data, after=10**9).open, DIGEST, len(DATA))
    with pytest.raises(error, match=text):
        whole(stream)


def test_bytes_that_are_stored_count_as_read() -> None:
    source = Breaking(DATA, after=10**9)
    stream = BlobStream(source.open, DIGEST, len(DATA))
    stream.go_on_after(io.BytesIO(DATA[:500]), 500)
    assert DATA[:500] + whole(stream) == DATA
    assert source.opened == [500]
    damaged = BlobStream(source.open, DIGEST, len(DATA))
    damaged.go_on_after(io.BytesIO(bytes(500)), 500)
    with pytest.raises(TemporaryFailure, match="digest"):
        whole(damaged)


def test_a_stream_can_begin_again() -> None:
    stream = BlobStream(Breaking(DATA, after=10**9).open, DIGEST, len(DATA))
    assert b"".join(stream.take(700)) == DATA[:700]
    stream.go_to(0)
    assert whole(stream) == DATA


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def widths(rate: Callable[[int], float], *, periods: int, first: int = 4) -> list[int]:
    """The gate's width after each period, where `rate` says what moves in one at a width."""
    clock = Clock()
    tide, found = Tide(now=clock, first=first), []
    for _ in range(periods):
        turns = [tide.turn() for _ in range(tide.width)]
        for turn in turns:
            turn.__enter__()
        clock.now += PERIOD_S
        tide.moved(int(rate(tide.width)))
        for turn in turns:
            turn.__exit__(None, None, None)
        found.append(tide.width)
    return found


def test_the_tide_rises_while_more_is_faster() -> None:
    assert widths(lambda width: 1000 * width, periods=12)[-1] >= 14


def test_the_tide_stays_about_where_it_is_fastest() -> None:
    # a disk that seeks: six at a time are best
    late = widths(lambda width: 1000 * (6 - abs(width - 6)), periods=40)[20:]
    assert 4 <= sum(late) / len(late) <= 8


def test_a_busy_server_halves_the_tide_and_never_ends_it() -> None:
    clock = Clock()
    tide, seen = Tide(now=clock, first=8), []
    for _ in range(5):
        clock.now += PERIOD_S
        tide.ebb()
        seen.append(tide.width)
    assert seen == [4, 2, 1, 1, 1]


def test_what_was_not_used_says_nothing() -> None:
    clock = Clock()
    tide = Tide(now=clock, first=4)
    for _ in range(6):
        clock.now += PERIOD_S
        with tide.turn():
            tide.moved(10)
    assert tide.width == 4


@pytest.mark.parametrize(
    ("size", "each", "sizes"), [(10, 0, [10]), (10, 10, [10]), (10, 4, [4, 4, 2]), (8, 4, [4, 4])]
)
def test_the_sizes_of_volumes(size: int, each: int, sizes: list[int]) -> None:
    assert volume_sizes(size, each) == sizes


@pytest.mark.parametrize("each", [0, 700, 1024, 5000])
def test_a_tar_file_may_be_written_in_any_order_and_any_pieces(tmp_path: Path, each: int) -> None:
    draw = random.Random(each)
    files = {f"blobs/sha256/{number:064x}": draw.randbytes(draw.randrange(3000)) for number in range(12)}
    plan = plan_tar((name, len(data)) for name, data in files.items())
    sizes = volume_sizes(plan.size, each)
    volumes = Volumes({tmp_path / f"v{number}": size for number, size in enumerate(sizes)})
    volumes.make()
    writes = [*plan.frame.items()]
    for name, data in files.items():
        start = plan.spans[name].offset
        writes += [(start + at, data[at : at + 333]) for at in range(0, len(data), 333)]
    draw.shuffle(writes)
    for offset, data in writes:
        volumes.write(offset, data)
    together = b"".join(path.read_bytes() for path in volumes.sizes)
    assert len(together) == plan.size
    with tarfile.open(fileobj=io.BytesIO(together)) as tar:
        assert {one.name: tar.extractfile(one).read() for one in tar} == files  # type: ignore[union-attr]
    for name, data in files.items():
        assert volumes.read(plan.spans[name].offset, len(data)) == data
    sums = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in volumes.sizes}
    assert {path: file_sum(path) for path in volumes.sizes} == sums
    volumes.close()


def test_a_volume_that_is_missing_or_short_is_named(tmp_path: Path) -> None:
    volumes = Volumes({tmp_path / "a": 10, tmp_path / "b": 10})
    (tmp_path / "a").write_bytes(bytes(10))
    with pytest.raises(InputError, match="b is not there"):
        volumes.read(5, 10)
    (tmp_path / "b").write_bytes(bytes(3))
    with pytest.raises(InputError, match="b is shorter"):
        volumes.read(5, 10)
    volumes.close()


def test_a_full_disk_is_found_before_anything_is_written(tmp_path: Path) -> None:
    volumes = Volumes({tmp_path / "a": 1 << 60})
    with pytest.raises(StorageFailed, match="a: "):
        volumes.make()
    volumes.close()


LOCK = {"schema": 1, "chart": None, "inputs": {}, "images": [], "left_out": [], "warnings": []}


@pytest.mark.parametrize(
    ("volume", "parts", "problem"),
    [
        ({"name": "../etc/passwd", "size": 10, "sha256": ""}, {}, "no volume's name"),
        ({"name": "/etc/passwd", "size": 10, "sha256": ""}, {}, "no volume's name"),
        ({"name": "a.tar\n", "size": 10, "sha256": ""}, {}, "no volume's name"),
        ({"name": "a.tar", "size": -1, "sha256": ""}, {}, "no volume's name"),
        ({"name": "a.tar", "size": 10, "sha256": ""}, {DIGEST: [5, 6]}, "outside"),
        ({"name": "a.tar", "size": 10, "sha256": ""}, {DIGEST: [-1, 6]}, "outside"),
        ({"name": "a.tar", "size": 10, "sha256": ""}, {DIGEST: [1]}, "outside"),
        ({"name": "a.tar", "size": True, "sha256": ""}, {}, "size"),
    ],
)
def test_a_hostile_list_is_refused(
    tmp_path: Path, volume: dict[str, Any], parts: dict[str, list[int]], problem: str
) -> None:
    document = {"schema": 1, "lock": LOCK, "volumes": [volume], "parts": parts, "left_out": {}}
    path = tmp_path / "x.list.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="no list of an archive") as refused:
        load_archive_list(path)
    assert problem in " ".join(refused.value.details)
