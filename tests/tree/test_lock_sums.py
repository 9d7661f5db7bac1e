"""Repositories that know their files by sha512 alone, as product-composer makes SUSE's; pins are sha256."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

import httpx2
import pytest

from driverforge_build import cli
from driverforge_build.discover.settings import Settings
from driverforge_build.discover.survey import Survey, survey
from driverforge_build.fetch.cache import Cache
from driverforge_build.fetch.fetcher import Fetcher
from driverforge_build.lock.file import dump_lock, load_lock, parse_lock
from driverforge_build.lock.pins import Lock, TargetLock
from driverforge_build.ports import Algorithm, Listed, Sum, sha256_sum
from driverforge_core.errors import DriverforgeError, InputError, TemporaryFailure, Unavailable
from support.fakes.mirror import fetcher
from support.process import missing
from support.samples.aptrepo import SigningKey
from support.samples.rpmrepo import build_all, index, sign_index
from support.samples.suserepo import BCI, MATRIX, suse_matrix

PROGRAMS = ("createrepo_c", "rpmbuild", "gpg", "gpgv")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)
TARGET = "sles15.7-amd64"
MACROS = "/bci/x86_64/kernel-macros-6.4.0-150700.51.1.noarch.rpm"
"""A package that is pinned, and that no probe looks into."""
SHA512 = ("--checksum=sha512",)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    build_all(BCI, folder / "x86_64")
    return folder


@dataclass(slots=True)
class Site:
    """A web server with one repository, and what it was asked for."""

    root: Path
    key: SigningKey
    asked: list[str] = field(default_factory=list)
    changes: dict[str, Callable[[bytes], bytes]] = field(default_factory=dict)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        self.asked.append(path)
        file = self.root / path.lstrip("/")
        if not file.is_file():
            return httpx2.Response(404)
        change = next((does for end, does in self.changes.items() if path.endswith(end)), bytes)
        return httpx2.Response(200, content=change(file.read_bytes()))

    def surveyed(self, cache: Path) -> Survey:
        self.asked.clear()
        settings = Settings(
            now=datetime.now(timezone.utc),
            mirrors={"sles15.7/SLE_BCI": "http://m.site/bci"},
            keyrings=[("", self.key.keyring)],
        )
        matrix = suse_matrix()
        return survey(matrix, [(matrix.rows[0], "amd64")], Lock(), fetcher(cache, self.answer), settings)

    def target(self, cache: Path) -> TargetLock:
        return self.surveyed(cache).targets[TARGET]


def published(folder: Path, packages: Path, key: SigningKey, *sums: str) -> Site:
    shutil.copytree(packages, folder / "bci")
    index(folder / "bci", "--simple-md-filenames", *sums)
    sign_index(folder / "bci", key)
    return Site(folder, key)


@pytest.mark.parametrize(
    "sums",
    [SHA512, ("--checksum=sha384",), (*SHA512, "--repomd-checksum=sha256"), ("--repomd-checksum=sha512",)],
    ids=" ".join,
)
def test_the_pins_are_those_of_an_index_with_sha256(
    tmp_path: Path, packages: Path, key: SigningKey, sums: tuple[str, ...]
) -> None:
    plain = published(tmp_path / "plain", packages, key).target(tmp_path / "a")
    site = published(tmp_path / "other", packages, key, *sums)
    target = site.target(tmp_path / "b")
    assert replace(target, repositories=()) == replace(plain, repositories=())
    (repository,) = target.repositories
    assert repository.indexes == {
        path: hashlib.sha256((site.root / "bci" / path).read_bytes()).hexdigest()
        for path in ("repodata/primary.xml.gz",)
    }
    lock = Lock(targets={TARGET: target})
    assert parse_lock(dump_lock(lock)) == lock


def test_of_packages_that_are_known_by_sha256_those_with_headers_alone_are_downloaded(
    tmp_path: Path, packages: Path, key: SigningKey
) -> None:
    site = published(tmp_path, packages, key, "--repomd-checksum=sha512")
    site.target(tmp_path / "cache")
    assert {path.rpartition("/")[2][:13] for path in site.asked if path.endswith(".rpm")} == {"kernel-devel-"}


def test_a_second_lock_downloads_nothing(tmp_path: Path, packages: Path, key: SigningKey) -> None:
    site = published(tmp_path, packages, key, *SHA512)
    first = site.target(tmp_path / "cache")
    signed = ["/bci/repodata/repomd.xml", "/bci/repodata/repomd.xml.asc"]
    assert MACROS in site.asked
    assert len(site.asked) == len(set(site.asked))
    assert site.target(tmp_path / "cache") == first
    assert site.asked == signed
    # what the files are, is known without the files
    shutil.rmtree(tmp_path / "cache/blobs")
    assert site.target(tmp_path / "cache") == first
    assert site.asked == [*signed, "/bci/repodata/primary.xml.gz"]


def other(data: bytes) -> bytes:
    """Another byte at the end, where it changes nothing of how a file is read."""
    return data[:-1] + bytes([data[-1] ^ 0xFF])


@pytest.mark.parametrize("end", ["primary.xml.gz", MACROS])
@pytest.mark.parametrize("change", [other, lambda data: data[:-1], lambda data: data + b"\0", lambda _: b""])
def test_a_file_with_another_sum_is_refused(
    tmp_path: Path, packages: Path, key: SigningKey, end: str, change: Callable[[bytes], bytes]
) -> None:
    site = published(tmp_path, packages, key, *SHA512)
    site.changes[end] = change
    for _ in range(2):
        with pytest.raises(TemporaryFailure, match="is not what the signed index says") as told:
            site.surveyed(tmp_path / "cache")
        assert any(path.endswith(end) for path in site.asked)
        _, expected, received = told.value.details
        assert " bytes, sha512 " in expected
        assert " bytes, sha512 " in received


@pytest.mark.parametrize(
    ("sums", "told"),
    [
        (("--checksum=sha",), "primary.xml.gz is known by its sha alone"),
        (("--checksum=md5",), "primary.xml.gz is known by its md5 alone"),
        (("--checksum=sha224",), "primary.xml.gz is known by its sha224 alone"),
        (("--checksum=sha1", "--repomd-checksum=sha512"), "is known by its sha1 alone"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_a_repository_that_knows_weak_sums_alone_says_so(
    tmp_path: Path, packages: Path, key: SigningKey, sums: tuple[str, ...], told: str
) -> None:
    site = published(tmp_path, packages, key, *sums)
    with pytest.raises(InputError) as caught:
        site.surveyed(tmp_path / "cache")
    assert told in caught.value.brief
    assert "--skip 'OS-*'" in caught.value.resolution


def test_a_system_whose_index_means_nothing_costs_no_other(
    tmp_path: Path, packages: Path, key: SigningKey, capsys: pytest.CaptureFixture[str]
) -> None:
    published(tmp_path / "good", packages, key, *SHA512)
    published(tmp_path / "bad", packages, key, "--checksum=md5")
    system = MATRIX.partition("systems:\n")[2]
    (tmp_path / "site.yaml").write_text(MATRIX + system.replace("sles15.7", "sles15.6"))
    words = ["lock", "--matrix", str(tmp_path / "site.yaml"), "--lock", str(tmp_path / "l.json")]
    words += ["--keyring", str(key.keyring), "--cache-dir", str(tmp_path / "cache")]
    words += ["--mirror", f"nvidia={(tmp_path / 'nvidia').as_uri()}"]
    for os, place in (("sles15.6", "bad"), ("sles15.7", "good")):
        words += ["--mirror", f"{os}/SLE_BCI={(tmp_path / place / 'bci').as_uri()}"]
        words += ["--base", f"{os}={os}@sha256:{'0' * 64}"]
    assert cli.run([*words, "--keep-going"]) == 1
    told = capsys.readouterr().err
    assert "sles15.6-amd64: error: cannot read repomd.xml of SLE_BCI: primary.xml.gz is known by" in told
    assert list(load_lock(tmp_path / "l.json").targets) == [TARGET]


def listed(content: bytes) -> Listed:
    digest = hashlib.sha512(content).hexdigest()
    known = Sum(algorithm=Algorithm.SHA512, digest=digest)
    return Listed(urls=("http://m.site/a.rpm",), sum=known, size=len(content))


def test_a_file_is_kept_under_its_sha256(tmp_path: Path) -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        asked.append("")
        return httpx2.Response(200, content=b"bytes")

    asked: list[str] = []
    downloads, file = fetcher(tmp_path, answer), listed(b"bytes")
    blob = downloads.pinned(file)
    assert (blob.sha256, blob.size) == (hashlib.sha256(b"bytes").hexdigest(), 5)
    assert downloads.blob(blob).read_bytes() == b"bytes"
    assert [path.name for path in tmp_path.glob("blobs/**/*") if path.is_file()] == [blob.sha256]
    assert Fetcher(Cache(tmp_path), None).pinned(file) == blob
    assert len(asked) == 1
    # what the cache says of it is damaged
    (record,) = tmp_path.glob("documents/*")
    record.write_bytes(record.read_bytes().replace(blob.sha256[:4].encode(), b"0000", 1))
    assert downloads.pinned(file) == blob
    assert len(asked) == 2


def test_a_file_by_its_sha256_is_asked_for_by_nobody(tmp_path: Path) -> None:
    file = replace(listed(b"bytes"), sum=sha256_sum("ab" * 32))
    assert Fetcher(Cache(tmp_path), None).pinned(file).listed == file


def test_without_a_network_a_file_that_never_came_is_named_by_its_sum(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"a\.rpm is not in the cache") as told:
        Fetcher(Cache(tmp_path), None).pinned(listed(b"bytes"))
    assert told.value.details == (f"sha512 {hashlib.sha512(b'bytes').hexdigest()}",)
    assert isinstance(told.value, DriverforgeError)
