"""What a carried list says of its packages is hostile until it is looked at."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driverforge_core.errors import InputError, TemporaryFailure
from driverforge_mirror.archive.packagefolders import lay_out
from driverforge_mirror.contents.carried import CarriedFile, artifact
from driverforge_mirror.lists.loads import Load
from driverforge_mirror.lists.mediatypes import PACKAGES, PACKAGES_CONFIG
from driverforge_oci.client import Manifest
from driverforge_oci.reference import Reference
from driverforge_oci.transport import Readable

IMAGE = "localhost/driverforge/packages:debian12-amd64"


@dataclass(frozen=True, slots=True)
class Carrier:
    """A source that has these bytes."""

    blobs: Mapping[str, bytes]

    def manifest(self, load: Load, digest: str) -> Manifest:
        raise AssertionError("the list has it")

    def open_blob(self, load: Load, digest: str, offset: int) -> Readable:
        return io.BytesIO(self.blobs[digest][offset:])


def packages(
    title: str, data: bytes = b"deb", *, os: str = "debian12", arch: str = "amd64"
) -> tuple[Carrier, Load]:
    about = {"os": os, "arch": arch, "manager": "apt", "definition": "deb {url}/debian bookworm main\n"}
    config = json.dumps(about).encode()
    digest = hashlib.sha256(data).hexdigest()
    file = CarriedFile(media_type="application/x", sha256=digest, size=len(data), address="a", title=title)
    found = artifact(CarriedFile.of(PACKAGES_CONFIG, config), [file], kind=PACKAGES)
    made = Manifest(media_type=found.media_type, digest=found.digest, data=found.made.encode())
    place = Reference.parse(IMAGE)
    load = Load(
        image=IMAGE,
        digest=found.digest,
        source=place,
        place=place,
        manifests={},
        blobs=found.platforms[0].blobs,
        made=made,
    )
    own = f"sha256:{hashlib.sha256(config).hexdigest()}"
    return Carrier({own: config, file.digest: data}), load


def test_files_lie_by_their_titles_and_are_written_once(tmp_path: Path) -> None:
    source, load = packages("debian/pool/a_1%3a2.deb")
    (first,) = lay_out(source, [load], tmp_path, "http://web.site/p/")
    assert (tmp_path / "debian12-amd64/debian/pool/a_1%3a2.deb").read_bytes() == b"deb"
    assert first.definition == "deb http://web.site/p/debian12-amd64/debian bookworm main\n"
    (again,) = lay_out(source, [load], tmp_path, "http://web.site/p/")
    assert (first.files, first.held, again.files, again.held) == (1, 0, 0, 1)


def test_a_file_that_was_changed_is_replaced(tmp_path: Path) -> None:
    source, load = packages("debian/a.deb")
    path = tmp_path / "debian12-amd64/debian/a.deb"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"bad")
    lay_out(source, [load], tmp_path, "u")
    assert path.read_bytes() == b"deb"


@pytest.mark.parametrize("title", ["../x", "/etc/x", "a/../../x", "a//x", "", ".hidden", "a/\nx", "link/x"])
def test_a_title_that_leads_elsewhere_is_refused(tmp_path: Path, title: str) -> None:
    own = tmp_path / "out/debian12-amd64"
    own.mkdir(parents=True)
    (own / "link").symlink_to(tmp_path)
    source, load = packages(title)
    with pytest.raises(InputError, match="is no file's name below"):
        lay_out(source, [load], tmp_path / "out", "u")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["debian12-amd64", "link", "out"]


@pytest.mark.parametrize(("os", "arch"), [("../x", "amd64"), ("debian12", "../x"), ("", "amd64")])
def test_a_system_that_leads_elsewhere_is_refused(tmp_path: Path, os: str, arch: str) -> None:
    source, load = packages("a", os=os, arch=arch)
    with pytest.raises(InputError, match="says that it is for") as refused:
        lay_out(source, [load], tmp_path, "u")
    assert refused.value.resolution
    assert not list(tmp_path.iterdir())


def test_other_bytes_than_the_digests_are_no_file(tmp_path: Path) -> None:
    source, load = packages("debian/a.deb")
    wrong = Carrier(
        {digest: data[:-1] + b"!" if data == b"deb" else data for digest, data in source.blobs.items()}
    )
    with pytest.raises(TemporaryFailure, match="not those of its digest"):
        lay_out(wrong, [load], tmp_path, "u")
    assert not (tmp_path / "debian12-amd64/debian/a.deb").exists()


@pytest.mark.parametrize(
    "layers", [[], None, [{"mediaType": "x", "digest": "sha256:" + "0" * 64, "size": 3}]]
)
def test_a_manifest_of_other_parts_than_the_lists_is_refused(tmp_path: Path, layers: object) -> None:
    source, load = packages("debian/a.deb")
    assert load.made is not None
    document = {**load.made.document, "layers": layers}
    if layers is None:
        del document["layers"]
    made = replace(load.made, data=json.dumps(document).encode())
    with pytest.raises(InputError, match="other parts than"):
        lay_out(source, [replace(load, made=made)], tmp_path, "u")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [-5, 2])
def test_a_size_that_is_not_the_lists_is_refused(tmp_path: Path, size: int) -> None:
    source, load = packages("debian/a.deb")
    assert load.made is not None
    document = load.made.document
    document["layers"][0]["size"] = size
    made = replace(load.made, data=json.dumps(document).encode())
    with pytest.raises(InputError, match="other parts than"):
        lay_out(source, [replace(load, made=made)], tmp_path, "u")
