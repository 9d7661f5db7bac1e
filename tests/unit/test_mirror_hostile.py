"""What lists, archives and registries may say that is not so, or lead nowhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from driverforge_build.app import carry
from driverforge_core.errors import InputError, StorageFailed, TemporaryFailure
from driverforge_mirror.archive.imagelayout import Archive
from driverforge_mirror.archive.volumes import Volumes
from driverforge_mirror.contents.chartarchive import ChartArchive, check_unmoved
from driverforge_mirror.contents.found import Found, Platform
from driverforge_mirror.copying.copier import Copied, Copier, LeftOut
from driverforge_mirror.copying.registries import PART, BegunUploads, RegistrySink
from driverforge_mirror.copying.stream import BlobStream
from driverforge_mirror.copying.tide import Tide
from driverforge_mirror.lists.loads import Load
from driverforge_mirror.lists.reader import load_archive_list
from driverforge_mirror.yamltext import MAX_BYTES
from driverforge_oci.client import OCI_MANIFEST, Manifest, digest_of
from driverforge_oci.reference import Reference
from driverforge_oci.uploads import Upload

PLACE = Reference.parse("registry.site/a:1")
DATA = bytes(PART + 5)


class Body:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size: int, /) -> bytes:
        # as a file has it: less than nothing is all of it
        assert size >= 0
        piece, self.data = self.data[:size], self.data[size:]
        return piece

    def close(self) -> None: ...


@dataclass
class Registry:
    """A registry that says of an upload whatever `standing` is; it has what was finished."""

    standing_at: int = 0
    begun: int = 0
    taken: bytes = b""
    had: list[str] = field(default_factory=list)

    @property
    def uploads(self) -> Registry:
        return self

    def has_blob(self, _place: Reference, digest: str) -> bool:
        return digest in self.had

    def begin(self, _place: Reference, **_given: str) -> Upload:
        self.begun += 1
        self.taken = b""
        return Upload(location="/upload")

    def standing(self, _place: Reference, _upload: Upload) -> Upload:
        return Upload(location="/upload", offset=self.standing_at)

    def append(self, _place: Reference, upload: Upload, part: tuple[bytes, ...], size: int) -> Upload:
        self.taken += b"".join(part)
        return Upload(location=upload.location, offset=upload.offset + size)

    def finish(
        self, _place: Reference, _upload: Upload, digest: str, body: tuple[bytes, ...], _size: int
    ) -> None:
        self.taken += b"".join(body)
        assert digest_of(self.taken) == digest
        self.had.append(digest)


class Unheard:
    def begins(self, total: int) -> None: ...

    def settled(self, size: int, *, told: int) -> None: ...

    def moved(self, count: int) -> None: ...

    def copied(self, result: Copied) -> None: ...


def copier(source: Any, sink: Any) -> Copier:
    return Copier(source=source, sink=sink, tide=Tide(now=lambda: 0.0), listener=Unheard())


def load_of(name: str, *blobs: bytes) -> Load:
    place, digest = Reference.parse(f"registry.site/{name}:1"), digest_of(b"{}")
    sizes = {digest_of(blob): len(blob) for blob in blobs}
    return Load(image=name, digest=digest, source=place, place=place, manifests={}, blobs=sizes)


def stream() -> BlobStream:
    return BlobStream(lambda offset: Body(DATA[offset:]), digest_of(DATA), len(DATA))


def sink(registry: Any, folder: Path) -> RegistrySink:
    return RegistrySink(client=registry, begun=BegunUploads(folder / "uploads.json"))


def test_an_upload_that_is_said_to_have_more_than_the_blob_begins_anew(tmp_path: Path) -> None:
    registry = Registry(standing_at=len(DATA) + 1)
    into = sink(registry, tmp_path)
    into.begun.put(f"{PLACE.name} {digest_of(DATA)}", "/upload")
    assert into.take_blob(load_of("a", DATA), stream(), "")
    assert (registry.begun, registry.had) == (1, [digest_of(DATA)])


def test_two_runs_do_not_go_on_with_one_upload(tmp_path: Path) -> None:
    path = tmp_path / "cache/uploads.json"
    first, second = BegunUploads(path), BegunUploads(path)
    first.put("blob", "/upload/1")
    assert second.get("blob") == ""
    second.put("other", "/upload/2")
    assert second.get("other") == "/upload/2"
    for one in (first, second):
        one.close()
    third = BegunUploads(path)
    assert (third.get("blob"), third.get("other")) == ("/upload/1", "")
    assert path.stat().st_mode & 0o077 == 0
    third.close()


def test_what_was_read_ahead_of_a_part_that_failed_is_sent_in_its_place(tmp_path: Path) -> None:
    class Breaking(Registry):
        def append(self, place: Reference, upload: Upload, part: tuple[bytes, ...], size: int) -> Upload:
            if self.begun == 1:
                raise TemporaryFailure("the connection broke")
            return super().append(place, upload, part, size)

    registry = Breaking()
    assert sink(registry, tmp_path).take_blob(load_of("a", DATA), stream(), "")
    assert (registry.begun, registry.had) == (2, [digest_of(DATA)])


class Holder:
    """An archive without DATA, and a mirror that has it in one of its repositories."""

    def __init__(self, holder: str) -> None:
        self.holder, self.mounted = holder, list[str]()

    def manifest(self, load: Load, digest: str) -> Manifest:
        return Manifest(media_type=OCI_MANIFEST, digest=digest, data=b"{}")

    def open_blob(self, load: Load, digest: str, offset: int) -> Body:
        raise LeftOut("the archive leaves it out")

    def holds(self, load: Load) -> bool:
        return False

    def has_blob(self, load: Load, digest: str) -> bool:
        return load.place.repository == self.holder

    def take_blob(self, load: Load, stream: BlobStream, mount_from: str) -> bool:
        self.mounted.append(mount_from)
        return bool(stream.read(1)) if mount_from != self.holder else False

    def take_image(self, load: Load, manifests: Sequence[Manifest]) -> None: ...


@pytest.mark.parametrize(
    ("holder", "states"), [("two", ["copied", "copied"]), ("gone", ["failed", "copied"])]
)
def test_what_was_left_out_is_taken_from_whatever_repository_has_it(holder: str, states: list[str]) -> None:
    """An inventory says which blobs there are, and not where."""
    images = [load_of("one", DATA), load_of("two")]
    both = Holder(holder)
    found = copier(both, both).run(images)
    assert [one.state for one in found] == states
    assert both.mounted == (["", "two"] if holder == "two" else [""])


def test_a_chart_whose_tag_moves_while_the_list_is_made_is_no_chart_of_it() -> None:
    archive = ChartArchive(data=DATA, source="oci://registry.site/a:1", image="registry.site/a:1")

    def found(data: bytes) -> Found:
        one = Platform(platform="", digest=digest_of(b"{}"), size=2, blobs={digest_of(data): len(data)})
        return Found(digest=one.digest, media_type=OCI_MANIFEST, size=2 + len(data), platforms=(one,))

    check_unmoved(archive, found(DATA))
    with pytest.raises(TemporaryFailure, match="has become another chart"):
        check_unmoved(archive, found(DATA[1:]))


@pytest.mark.parametrize("name", ["our archive", "-x", ".hidden", ".", "..", "ä"])
def test_an_archive_gets_no_name_that_its_reader_refuses(tmp_path: Path, name: str) -> None:
    lock: Any = {"schema": 1, "chart": None, "inputs": {}, "images": [], "left_out": [], "warnings": []}
    with pytest.raises(InputError, match="no name for an archive") as refused:
        Archive.plan(tmp_path / name if name != "." else Path(), lock)
    assert refused.value.resolution


def test_no_name_at_all_is_an_archive_that_is_not_there() -> None:
    with pytest.raises(InputError, match="cannot be read"):
        carry.arrived(Path())


def test_a_list_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gpu.list.json"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(InputError, match="the most that is read"):
        load_archive_list(path)


def test_a_volume_that_is_a_pipe_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    volumes = Volumes({tmp_path / "a": 10})
    with pytest.raises(StorageFailed, match="a: "):
        volumes.read(0, 5)
    volumes.close()
