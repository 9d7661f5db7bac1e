"""What may go wrong during a copy, and has to stay with what it happened to."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from driverforge_build.app.carry import Carrying, save
from driverforge_build.commands.mirror.copyprogress import CopyProgress
from driverforge_core.errors import InputError, TemporaryFailure, Unavailable
from driverforge_mirror.archive.imagelayout import Archive, ArchiveSink
from driverforge_mirror.archive.journal import Journal
from driverforge_mirror.archive.trust import KIND
from driverforge_mirror.copying.copier import Copied, Copier
from driverforge_mirror.copying.stream import BlobStream
from driverforge_mirror.copying.tide import PERIOD_S, Tide
from driverforge_mirror.lists.loads import Load, loads
from driverforge_mirror.lists.reader import load_mirror_lock
from driverforge_oci.client import OCI_MANIFEST, Manifest, digest_of
from driverforge_oci.reference import Reference

BASE, OWN = b"shared by all" * 1000, b"one's own" * 1000


class Zeros:
    """A body that goes on and on."""

    def __init__(self, most: int) -> None:
        self.left = most

    def read(self, size: int, /) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise AssertionError("nobody stopped this transfer")
        # as a network does: the other threads have their turn
        time.sleep(0.001)
        return bytes(min(size, 1 << 16))

    def close(self) -> None: ...


class Body:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size: int, /) -> bytes:
        piece, self.data = self.data[:size], self.data[size:]
        return piece

    def close(self) -> None: ...


@dataclass
class Shelf:
    """A source with these blobs, and a sink that takes all but what `refuses` names."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    refuses: str = ""
    taken: list[str] = field(default_factory=list)

    def manifest(self, _load: Load, digest: str) -> Manifest:
        return Manifest(media_type=OCI_MANIFEST, digest=digest, data=self.blobs[digest])

    def open_blob(self, _load: Load, digest: str, offset: int) -> Any:
        self.taken.append(digest)
        return Body(self.blobs[digest][offset:])

    def holds(self, _load: Load) -> bool:
        return False

    def has_blob(self, _load: Load, _digest: str) -> bool:
        return False

    def take_blob(self, load: Load, stream: BlobStream, _mount_from: str) -> bool:
        if load.place.repository == self.refuses:
            raise Unavailable("no")
        while stream.read(1 << 16):
            pass
        return True

    def take_image(self, _load: Load, _manifests: Sequence[Manifest]) -> None: ...


class Listener:
    def __init__(self) -> None:
        self.dealt: list[tuple[int, int]] = []

    def begins(self, total: int) -> None: ...

    def settled(self, size: int, *, told: int) -> None:
        self.dealt.append((size, told))

    def moved(self, count: int) -> None: ...

    def copied(self, result: Copied) -> None: ...


def load_of(name: str, *blobs: bytes, manifest: bytes = b"{}") -> Load:
    place = Reference.parse(f"registry.site/{name}:1")
    sizes = {digest_of(blob): len(blob) for blob in blobs}
    return Load(
        image=str(place), digest=digest_of(manifest), source=place, place=place, manifests={}, blobs=sizes
    )


def shelf(*datas: bytes, refuses: str = "") -> Shelf:
    return Shelf({digest_of(data): data for data in (*datas, b"{}")}, refuses)


def copier(source: Any, sink: Any, listener: Any = None) -> Copier:
    return Copier(source=source, sink=sink, tide=Tide(now=lambda: 0.0), listener=listener or Listener())


def test_a_repository_that_refuses_a_shared_blob_fails_alone() -> None:
    for order in itertools.permutations(("one", "refusing", "two")):
        stock = shelf(BASE, OWN, refuses="refusing")
        found = copier(stock, stock).run([load_of(name, BASE, OWN) for name in order])
        assert {one.load.place.repository: one.state for one in found} == {
            "one": "copied",
            "refusing": "failed",
            "two": "copied",
        }


def test_what_was_sent_for_an_image_that_failed_counts_too() -> None:
    class NoManifests(Shelf):
        def take_image(self, _load: Load, _manifests: Sequence[Manifest]) -> None:
            raise Unavailable("no")

    stock = NoManifests({digest_of(data): data for data in (BASE, b"{}")})
    (result,) = copier(stock, stock).run([load_of("one", BASE)])
    assert (result.state, result.sent) == ("failed", len(BASE))


@pytest.mark.parametrize("breaking", [0, 3])
@pytest.mark.parametrize("error", [KeyboardInterrupt, AssertionError])
def test_an_interrupt_stops_what_runs_and_begins_nothing_more(
    breaking: int, error: type[BaseException]
) -> None:
    class Interrupted(Shelf):
        def open_blob(self, _load: Load, digest: str, _offset: int) -> Any:
            self.taken.append(digest)
            # four run side by side at first
            if len(self.taken) > 3:
                busy.set()
            if digest == digest_of(b"%d" % breaking):
                assert busy.wait(20)
                raise error
            return Zeros(20_000)

    busy = threading.Event()
    stock = Interrupted()
    images = [
        Load(
            image=f"image{number}",
            digest=digest_of(b"{}"),
            source=Reference.parse("registry.site/a:1"),
            place=Reference.parse(f"registry.site/a{number}:1"),
            manifests={},
            blobs={digest_of(b"%d" % number): 1 << 40},
        )
        for number in range(60)
    ]
    with pytest.raises(error):
        copier(stock, stock).run(images)
    # in their order: the first images are whole early
    assert set(stock.taken[:4]) == {digest_of(b"%d" % number) for number in range(4)}
    # one may take the room of the one that broke before all hear of it
    assert len(stock.taken) <= 5


def test_an_empty_blob_is_compared_too() -> None:
    stream = BlobStream(lambda _offset: Body(b""), digest_of(b""), 0)
    assert stream.read(10) == b""
    with pytest.raises(TemporaryFailure, match="not those of its digest"):
        BlobStream(lambda _offset: Body(b""), digest_of(b"something"), 0).read(10)


def test_progress_ends_at_the_total_whatever_was_begun_anew() -> None:
    told = []
    progress = CopyProgress(as_json=False, moving=lambda done, total, _rate: told.append((done, total)))
    progress.begins(300)
    # a blob that broke off and began anew, one that an earlier run had half of, one that was mounted
    progress.moved(70)
    progress.moved(100)
    progress.settled(100, told=170)
    progress.moved(50)
    progress.settled(100, told=50)
    progress.settled(100, told=0)
    assert told[-1] == (300, 300)
    assert max(done for done, _ in told) <= 300


def test_many_that_are_told_to_wait_at_once_halve_the_tide_once() -> None:
    now = 0.0
    tide = Tide(now=lambda: now, first=16)
    for _ in range(16):
        tide.ebb()
    assert tide.width == 8
    now += PERIOD_S
    tide.ebb()
    assert tide.width == 4


@dataclass
class Disk(Shelf):
    """One that takes `cost` seconds of its clock for a write, of which it does one at a time, by its writers.

    `widths` are those of the tide at each write.
    """

    cost: Callable[[int], float] = lambda _writers: 0.0
    now: float = 0.0
    writers: int = 0
    widths: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.tide = Tide(now=lambda: self.now, first=8)

    def take_blob(self, _load: Load, stream: BlobStream, _mount_from: str) -> bool:
        with self.lock:
            self.writers += 1
        while stream.read(1 << 6):
            # as a disk does: the other threads have their turn
            time.sleep(0.0001)
            with self.lock:
                self.now += self.cost(self.writers)
                self.widths.append(self.tide.width)
        with self.lock:
            self.writers -= 1
        return True

    def late(self) -> float:
        """The tide's width on average, at the last of all writes."""
        last = self.widths[-len(self.widths) // 4 :]
        return sum(last) / len(last)


@pytest.mark.parametrize(
    ("cost", "widths"),
    [
        # its head goes from file to file; only time tells, for the disk says of nothing that it is busy
        (lambda writers: 0.0002 * writers**2, range(1, 4)),
        # it has many heads
        (lambda writers: 0.04 / writers, range(13, 17)),
    ],
    ids=["slow", "wide"],
)
def test_a_disk_that_many_writers_slow_down_narrows_the_tide(
    cost: Callable[[int], float], widths: range
) -> None:
    datas = [number.to_bytes(2) * 1024 for number in range(200)]
    disk = Disk({digest_of(data): data for data in (*datas, b"{}")}, cost=cost)
    Copier(source=disk, sink=disk, tide=disk.tide, listener=Listener()).run([load_of("one", *datas)])
    assert round(disk.late()) in widths


# archives


def lock_of(*images: tuple[str, Sequence[bytes]]) -> Any:
    found = []
    for name, blobs in images:
        sizes = {digest_of(blob): len(blob) for blob in blobs}
        platform = {"platform": "", "digest": digest_of(name.encode()), "size": len(name), "blobs": sizes}
        found.append(
            {
                "image": f"registry.site/{name}:1",
                "digest": digest_of(name.encode()),
                "media_type": OCI_MANIFEST,
                "made": "",
                "size": len(name) + sum(sizes.values()),
                "platforms": [platform],
                "reasons": [],
                "attached": [],
            }
        )
    return {"schema": 1, "chart": None, "inputs": {}, "images": found, "left_out": [], "warnings": []}


BLOBS = [bytes([number]) * 70_000 for number in range(6)]
LOCK = lock_of(("one", BLOBS[:3]), ("two", BLOBS[3:]))


@dataclass
class Writing:
    """Runs that write one archive."""

    place: Path
    each: int = 100_000
    stock: Shelf = field(default_factory=lambda: shelf(*BLOBS, b"one", b"two"))

    def sink(self) -> ArchiveSink:
        return ArchiveSink(Archive.plan(self.place, LOCK, each=self.each), self.place.with_name("a.journal"))

    def run(self, finished: Any = None) -> tuple[Any, int]:
        """The list, and how many blobs were read from the source for it."""
        self.stock.taken.clear()
        sink = self.sink()
        try:
            sink.begin(finished)
            named = {image["image"]: Reference.parse(image["image"]) for image in LOCK["images"]}
            found = copier(self.stock, sink).run(loads(LOCK, named, {}))
            assert not [one.error for one in found if one.error]
            return sink.finish(), len(self.stock.taken)
        finally:
            sink.close()


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    return Writing(tmp_path / "a")


def whole(writing: Writing) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(writing.place.parent.glob("a.tar*")))


def test_volumes_of_another_size_leave_none_behind(writing: Writing) -> None:
    """`cat a.tar.*` has to be one archive, whatever was written under this name before."""
    writing.run()
    before = len(list(writing.place.parent.glob("a.tar.*")))
    stranger = writing.place.with_name("ab.tar.001")
    stranger.write_text("another archive's")
    writing.place.with_name(f"a.{before:03d}.sha256").write_text("its sum")
    writing.each = 300_000
    document, _ = writing.run()
    left = sorted(path.name for path in writing.place.parent.glob("a.*"))
    assert left == ["a.journal", *(volume["name"] for volume in document["volumes"])]
    assert len(left) - 1 < before
    assert stranger.exists()
    # and the other way round: what was done is known of the last size alone
    writing.each = 100_000
    assert writing.run()[1] == len(BLOBS)
    assert len(whole(writing)) == sum(volume["size"] for volume in writing.run()[0]["volumes"])


def test_an_archive_over_another_one_has_nothing_of_it(writing: Writing) -> None:
    """A tar file that does not end is none for skopeo and containerd."""
    writing.run()
    for volume in writing.sink().archive.volumes:
        volume.write_bytes(b"\xff" * volume.stat().st_size)
    writing.place.with_name("a.journal").unlink()
    writing.run()
    other = Writing(writing.place.parent / "other/a")
    other.run()
    assert whole(writing) == whole(other)


def test_an_archive_whose_disk_is_mounted_elsewhere_goes_on(writing: Writing) -> None:
    writing.place = writing.place.parent / "usb/a"
    first, _ = writing.run()
    writing.place.parent.rename(writing.place.parent.with_name("usb1"))
    writing.place = writing.place.parent.with_name("usb1") / "a"
    assert writing.run() == (first, 0)


def test_an_archive_in_volumes_replaces_the_one_file_that_it_was(writing: Writing) -> None:
    writing.each = 0
    document, _ = writing.run()
    single = writing.place.with_name("a.tar")
    writing.place.with_name("a.sha256").write_text("its sum")
    writing.each = 100_000
    later, _ = writing.run(document)
    assert not single.exists()
    assert not writing.place.with_name("a.sha256").exists()
    # what somebody has put together of the volumes is theirs
    single.write_text("together")
    writing.run(later)
    assert single.exists()


def test_what_two_repositories_share_comes_into_an_archive_once(tmp_path: Path) -> None:
    lock, stock, heard = lock_of(("one", [BASE]), ("two", [BASE])), shelf(BASE, b"one", b"two"), Listener()
    sink = ArchiveSink(Archive.plan(tmp_path / "a", lock), tmp_path / "a.journal")
    sink.begin()
    named = {image["image"]: Reference.parse(image["image"]) for image in lock["images"]}
    found = copier(stock, sink, heard).run(loads(lock, named, {}))
    sink.close()
    assert stock.taken == [digest_of(BASE)]
    assert sorted(one.sent for one in found) == [0, len(BASE)]
    assert heard.dealt == [(len(BASE), len(BASE))]


def test_a_run_that_is_killed_at_its_end_reads_nothing_again(writing: Writing) -> None:
    first, count = writing.run()
    assert count == len(BLOBS)
    assert writing.run() == (first, 0)


def test_an_archive_that_is_whole_is_made_again_of_itself(writing: Writing) -> None:
    document, _ = writing.run()
    writing.place.with_name("a.journal").unlink()
    assert writing.run(document) == (document, 0)
    writing.place.with_name("a.journal").unlink()
    before, damaged = whole(writing), writing.place.with_name("a.tar.002")
    damaged.write_bytes(bytes([damaged.read_bytes()[0] ^ 1]) + damaged.read_bytes()[1:])
    again, count = writing.run(document)
    assert again == document
    assert whole(writing) == before
    assert 0 < count < len(BLOBS)


def test_an_archive_of_a_list_that_was_made_anew_keeps_its_parts(writing: Writing) -> None:
    document, _ = writing.run()
    writing.place.with_name("a.journal").unlink()
    earlier = {**document, "lock": {**document["lock"], "inputs": {"nodes.json": "of yesterday"}}}
    assert writing.run(earlier) == (document, 0)


def test_parts_that_lay_elsewhere_are_fetched_again(writing: Writing) -> None:
    document, _ = writing.run()
    writing.place.with_name("a.journal").unlink()
    parts = dict(document["parts"])
    moved = digest_of(BLOBS[1])
    parts[moved] = parts[digest_of(BLOBS[0])]
    assert writing.run({**document, "parts": parts}) == (document, 1)


def test_an_archive_that_is_whole_is_made_anew_in_more_volumes(writing: Writing) -> None:
    writing.each = 0
    document, _ = writing.run()
    writing.place.with_name("a.journal").unlink()
    writing.each = 100_000
    assert writing.run(document)[1] == len(BLOBS)


@pytest.mark.parametrize("size", [0, 50_000])
def test_a_volume_that_was_cut_is_written_anew(writing: Writing, size: int) -> None:
    first, _ = writing.run()
    before = whole(writing)
    writing.place.with_name("a.tar.003").write_bytes(bytes(size))
    assert writing.run() == (first, len(BLOBS))
    assert whole(writing) == before


def test_bytes_before_a_mark_that_are_wrong_are_fetched_again(writing: Writing) -> None:
    sink = writing.sink()
    sink.begin(None)
    sink.close()
    with writing.place.with_name("a.journal").open("a") as journal:
        journal.write(f"mark {digest_of(BLOBS[2])} 60000\n")
    document, _ = writing.run()
    other = Writing(writing.place.parent / "other/a")
    assert other.run()[0]["volumes"] == document["volumes"]


def test_a_journal_that_ends_within_a_line_goes_on(writing: Writing) -> None:
    writing.run()
    journal = writing.place.with_name("a.journal")
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join(lines[:3]) + f"\ndone {digest_of(BLOBS[0])[:20]}")
    first, count = writing.run()
    assert count
    assert writing.run() == (first, 0)


def test_two_runs_do_not_write_one_archive(writing: Writing) -> None:
    sink = writing.sink()
    sink.begin(None)
    with pytest.raises(TemporaryFailure, match="another run"):
        writing.run()
    sink.close()
    writing.run()


def test_an_archive_is_one_runs_until_its_list_is_there(tmp_path: Path) -> None:
    """Another run with another list would write over volumes that this one's list is about to speak of."""
    refused = []

    class Signing:
        def sign(self, _content: bytes, *, image: str, predicate: str) -> bytes:
            assert (image, predicate) == ("a", KIND)
            with pytest.raises(TemporaryFailure, match="another run") as found:
                Journal(tmp_path / "a.journal").open()
            refused.append(found.value)
            return b"signed"

    nothing: Any = None
    carrying = Carrying(tide=Tide(now=lambda: 0.0), listener=Listener(), files=nothing)
    document = save(carrying, lock_of(), nothing, tmp_path / "a", registries={}, signer=Signing())
    assert refused
    assert document["list"] == str(tmp_path / "a.list.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.list.json",
        "a.list.json.sig",
        "a.sha256",
        "a.tar",
    ]


def test_parts_have_their_own_digests_algorithm(tmp_path: Path) -> None:
    digest = "sha512:" + hashlib.sha512(OWN).hexdigest()
    lock = lock_of(("one", [BASE]))
    lock["images"][0]["platforms"][0]["blobs"] = {digest: len(OWN)}
    archive = Archive.plan(tmp_path / "a", lock)
    assert digest in archive.document(dict.fromkeys(archive.volumes, ""))["parts"]


@pytest.mark.parametrize("size", [-1, -(1 << 70)])
def test_sizes_below_nothing_are_refused(tmp_path: Path, size: int) -> None:
    lock = lock_of(("one", [BASE]))
    lock["images"][0]["platforms"][0]["blobs"][digest_of(BASE)] = size
    path = tmp_path / "mirror.lock.json"
    path.write_text(json.dumps(lock))
    with pytest.raises(InputError, match="no list of a mirror"):
        load_mirror_lock(path)


def test_what_an_image_has_sent_is_counted_whole() -> None:
    datas = [b"%d" % number * 100 for number in range(300)]
    stock = shelf(*datas)
    (result,) = copier(stock, stock).run([load_of("one", *datas)])
    assert result.sent == sum(map(len, datas))


def test_an_index_of_ours_with_another_digest_is_refused(tmp_path: Path) -> None:
    lock = lock_of(("one", [BASE]))
    lock["images"][0]["made"] = "{}"
    path = tmp_path / "mirror.lock.json"
    path.write_text(json.dumps(lock))
    with pytest.raises(InputError, match="no list of a mirror"):
        load_mirror_lock(path)
