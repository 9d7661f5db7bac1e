"""Suites from signature to packages, on real repositories: made with dpkg-deb and gpg, verified with gpgv."""

from __future__ import annotations

import bz2
import gzip
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from driverforge_build import packed
from driverforge_build.discover.apt.kernel_debs import find_kernels
from driverforge_build.discover.apt.stanzas import new_index
from driverforge_build.discover.apt.suite import Location, read_packages, read_suite
from driverforge_build.discover.machine import read_machine
from driverforge_build.discover.signature import Untrusted, verify
from driverforge_build.matrix.repository import Repository
from driverforge_core.errors import InputError, TemporaryFailure, Unavailable, UsageError
from support.fakes.mirror import fetcher
from support.process import missing, run
from support.samples.aptrepo import EPOCH, Archive, Deb, SigningKey, signing_key
from support.samples.sampledebian import BARE, NEW, OLD, publish, sample_matrix

pytestmark = pytest.mark.skipif(
    bool(missing("gpg", "gpgv", "dpkg-deb")),
    reason=f"not installed: {', '.join(missing('gpg', 'gpgv', 'dpkg-deb'))}",
)

NOW = EPOCH + timedelta(days=1)
DEBS = [Deb(name="a", version="1", depends="b"), Deb(name="b", version="2", arch="all")]
ROW = Repository(id="bookworm", archive="debian", components=("main",))


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "k") as made:
        yield made


@pytest.fixture(scope="module")
def other_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "other") as made:
        yield made


@pytest.fixture
def archive(tmp_path: Path, key: SigningKey) -> Archive:
    return Archive(tmp_path / "debian", key)


def location(archive: Archive, *, keyring: Path | None = None, row: Repository = ROW) -> Location:
    return Location(repository=row, uri=archive.url, keyrings=(keyring or archive.key.keyring,))


def test_from_signature_to_package(archive: Archive, tmp_path: Path) -> None:
    archive.publish("bookworm", {"main": DEBS})
    suite = read_suite(fetcher(tmp_path / "cache"), location(archive), now=NOW)
    catalogue = new_index()
    read_packages(fetcher(tmp_path / "cache"), suite, "amd64", catalogue)
    (package,) = catalogue.versions("b")
    assert (package.version, package.arch, package.suite) == ("2", "all", "bookworm")
    assert (archive.folder / package.path).stat().st_size == package.size
    assert len(suite.fingerprints[0]) == 40
    locked = suite.locked("amd64", fetcher(tmp_path / "cache"))
    assert locked.date == "2026-11-20T12:00:00Z"
    assert list(locked.indexes) == ["main/binary-amd64/Packages.xz"]


def zstd_compressed(data: bytes) -> bytes:
    return bytes(packed.zstd.compress(data))


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".zst", zstd_compressed), ("", bytes)],
)
def test_an_index_may_be_packed_in_one_way_alone(
    archive: Archive, tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    replace(archive, packing={f"Packages{suffix}": pack}).publish("bookworm", {"main": DEBS})
    suite = read_suite(fetcher(tmp_path / "cache"), location(archive), now=NOW)
    read_packages(fetcher(tmp_path / "cache"), suite, "amd64", catalogue := new_index())
    assert [package.version for package in catalogue.versions("b")] == ["2"]


@pytest.mark.parametrize(
    ("fields", "role", "preference"),
    [
        ({}, "main", 500),
        ({}, "security", 500),
        ({"NotAutomatic": "yes"}, "main", 100),
        # what a mirror of backports may have lost
        ({}, "backports", 100),
        ({}, "extra", 100),
    ],
)
def test_a_suite_that_is_not_used_by_itself_comes_last(
    archive: Archive, tmp_path: Path, fields: dict[str, str], role: str, preference: int
) -> None:
    archive.publish("bookworm", {"main": DEBS}, fields=fields)
    row = Repository.model_validate({**ROW.model_dump(), "role": role})
    suite = read_suite(fetcher(tmp_path / "cache"), location(archive, row=row), now=NOW)
    read_packages(fetcher(tmp_path / "cache"), suite, "amd64", catalogue := new_index())
    assert catalogue.versions("a")[0].preference == preference


def test_an_armored_keyring_serves_as_well(archive: Archive, tmp_path: Path) -> None:
    archive.publish("bookworm", {"main": DEBS})
    assert (
        read_suite(
            fetcher(tmp_path / "cache"), location(archive, keyring=archive.key.armored), now=NOW
        ).release.codename
        == "bookworm"
    )


def test_one_keyring_of_several_suffices(archive: Archive, other_key: SigningKey) -> None:
    text = archive.key.clearsign("Origin: x\n").encode()
    assert verify(text, [other_key.keyring, archive.key.keyring], name="InRelease").text == "Origin: x\n"


def test_a_changed_document_is_refused(archive: Archive, tmp_path: Path) -> None:
    dist = archive.publish("bookworm", {"main": DEBS})
    text = (dist / "InRelease").read_text()
    (dist / "InRelease").write_text(text.replace("Label: Debian", "Label: Debiam"))
    with pytest.raises(Untrusted, match="was changed after it was signed"):
        read_suite(fetcher(tmp_path / "cache"), location(archive), now=NOW)


def test_a_key_that_is_not_in_the_keyring_is_named(
    archive: Archive, other_key: SigningKey, tmp_path: Path
) -> None:
    archive.publish("bookworm", {"main": DEBS})
    with pytest.raises(Untrusted, match="not signed by a key that is trusted here") as told:
        read_suite(fetcher(tmp_path / "cache"), location(archive, keyring=other_key.keyring), now=NOW)
    assert any("a key that the keyrings do not have" in line for line in told.value.details)
    assert "--keyring" in told.value.resolution


def test_a_key_that_has_expired_is_refused(tmp_path: Path) -> None:
    key = SigningKey.make(tmp_path / "old", expires="30d", clock="20200101T000000")
    try:
        with pytest.raises(Untrusted, match="not signed by a key that is trusted here") as told:
            verify(key.clearsign("Suite: bookworm\n").encode(), [key.keyring], name="InRelease")
    finally:
        key.destroy()
    assert any("a key that is expired or revoked" in line for line in told.value.details)


def test_a_key_that_was_revoked_is_refused(tmp_path: Path) -> None:
    with signing_key(tmp_path / "revoked") as key:
        signed = key.clearsign("Suite: bookworm\n").encode()
        assert verify(signed, [key.keyring], name="InRelease").fingerprints
        key.revoke()
        with pytest.raises(Untrusted, match="not signed by a key that is trusted here") as told:
            verify(signed, [key.keyring], name="InRelease")
    assert any("a key that is expired or revoked" in line for line in told.value.details)


@pytest.mark.parametrize("text", ["", "Suite: bookworm\n", "<html>a portal</html>"])
def test_an_unsigned_document_is_refused(archive: Archive, text: str) -> None:
    with pytest.raises(Untrusted):
        verify(text.encode(), [archive.key.keyring], name="InRelease")


def test_text_around_the_signed_part_is_not_read(archive: Archive) -> None:
    signed = "Suite: evil\n\n" + archive.key.clearsign("Suite: good\n") + "\nSuite: evil\n"
    try:
        text = verify(signed.encode(), [archive.key.keyring], name="InRelease").text
    except Untrusted:
        return
    assert text == "Suite: good\n"


def test_a_keyring_that_is_not_there(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the keyring"):
        verify(archive.key.clearsign("x\n").encode(), [tmp_path / "none.gpg"], name="InRelease")


def test_an_armored_keyring_that_is_damaged(archive: Archive, tmp_path: Path) -> None:
    head = archive.key.armored.read_text().partition("\n\n")[0]
    (damaged := tmp_path / "k.asc").write_text(f"{head}\n\nabc\n-----END PGP PUBLIC KEY BLOCK-----\n")
    with pytest.raises(InputError, match=r"the keyring .* is damaged"):
        verify(archive.key.clearsign("x\n").encode(), [damaged], name="InRelease")


def test_a_signed_text_that_is_not_utf_8_is_read_all_the_same(archive: Archive, tmp_path: Path) -> None:
    """Labels and descriptions are not looked at."""
    (text := tmp_path / "text").write_bytes(b"Origin: \xff\nSuite: x\n")
    run("gpg", "--homedir", archive.key.home, "--batch", "--clearsign", "--output", tmp_path / "signed", text)
    signed = (tmp_path / "signed").read_bytes()
    assert b"\xff" in signed
    assert "Suite: x" in verify(signed, [archive.key.keyring], name="InRelease").text


def test_without_gpgv(archive: Archive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = archive.key.clearsign("x\n").encode()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="no gpgv on this machine") as told:
        verify(text, [archive.key.keyring], name="InRelease")
    assert "apt-get install gpgv" in told.value.resolution


def test_a_suite_that_is_too_old(archive: Archive, tmp_path: Path) -> None:
    archive.publish("bookworm", {"main": DEBS}, valid_for=timedelta(hours=12))
    with pytest.raises(Unavailable, match="expired on 2026-11-21T00:00:00Z") as told:
        read_suite(fetcher(tmp_path / "cache"), location(archive), now=NOW)
    assert "--accept-expired" in told.value.resolution
    assert (
        read_suite(
            fetcher(tmp_path / "cache"), location(archive), now=NOW, accept_expired=True
        ).release.codename
        == "bookworm"
    )


def test_another_suite_at_that_address(archive: Archive, tmp_path: Path) -> None:
    archive.publish("bookworm", {"main": DEBS}, fields={"Codename": "trixie"})
    with pytest.raises(UsageError, match="is not bookworm: it says Suite test-bookworm, Codename trixie"):
        read_suite(fetcher(tmp_path / "cache"), location(archive), now=NOW)


def test_a_component_that_the_mirror_lacks(archive: Archive, tmp_path: Path) -> None:
    archive.publish("bookworm", {"main": DEBS})
    suite = read_suite(
        fetcher(tmp_path / "cache"),
        location(archive, row=ROW.model_copy(update={"components": ("main", "non-free")})),
        now=NOW,
    )
    with pytest.raises(Unavailable, match="no packages of component non-free for amd64"):
        read_packages(fetcher(tmp_path / "cache"), suite, "amd64", new_index())


def test_an_index_that_is_not_the_signed_one(archive: Archive, tmp_path: Path) -> None:
    dist = archive.publish("bookworm", {"main": DEBS}, by_hash=False)
    suite = read_suite(fetcher(tmp_path / "cache"), location(archive), now=NOW)
    (dist / "main/binary-amd64/Packages.xz").write_bytes(b"another")
    with pytest.raises(TemporaryFailure, match=r"Packages\.xz is not what the signed index says"):
        read_packages(fetcher(tmp_path / "cache"), suite, "amd64", new_index())


def test_by_hash_survives_an_update_of_the_mirror(archive: Archive, tmp_path: Path) -> None:
    dist = archive.publish("bookworm", {"main": DEBS})
    suite = read_suite(fetcher(tmp_path / "cache"), location(archive), now=NOW)
    (dist / "main/binary-amd64/Packages.xz").write_bytes(b"the next one already")
    catalogue = new_index()
    read_packages(fetcher(tmp_path / "cache"), suite, "amd64", catalogue)
    assert catalogue.names("") == ["a", "b"]


def test_all_kernels_of_a_flavour(archive: Archive, tmp_path: Path) -> None:
    security = Archive(tmp_path / "debian-security", archive.key)
    publish(archive, security)
    row = sample_matrix().rows[0]
    catalogue = new_index()
    for repository, where in zip(row.repositories, (archive, security), strict=True):
        suite = read_suite(fetcher(tmp_path / "cache"), location(where, row=repository), now=NOW)
        read_packages(fetcher(tmp_path / "cache"), suite, "amd64", catalogue)
    kernels = find_kernels(catalogue, row, "amd64")
    assert [kernel.release.text for kernel in kernels.found] == [OLD, NEW]
    assert [release.text for release in kernels.without_headers] == [BARE]
    old, new = kernels.found
    assert [(package.name, package.version) for package in old.headers] == [
        ("linux-headers-6.1.0-50-cloud-amd64", "6.1.176-1"),
        ("linux-headers-6.1.0-50-common", "6.1.176-1"),
        ("linux-kbuild-6.1", "6.1.176-1"),
    ]
    assert (old.compiler, new.compiler) == ("gcc-12", "gcc-12")
    assert [requirement.name for requirement in old.links] == ["libc6", "libelf1"]
    assert [package.version for package in new.headers] == ["6.1.187-1"] * 3
    assert {package.suite for package in new.headers} == {"bookworm-security"}


def test_the_new_naming_of_kernels(archive: Archive, tmp_path: Path) -> None:
    """Debian 13: the compiler is a direct dependency, the image an alternative that is no part of the
    headers, kbuild is per ABI.
    """
    release = "6.12.94+deb13-cloud-amd64"
    headers = Deb(
        name=f"linux-headers-{release}",
        version="6.12.94-1",
        depends=f"linux-base (>= 4.12~), linux-headers-6.12.94+deb13-common (= 6.12.94-1), "
        f"linux-image-{release} (= 6.12.94-1) | "
        f"linux-image-{release}-unsigned (= 6.12.94-1), linux-kbuild-6.12.94+deb13, gcc-14-for-host",
    )
    debs = [
        headers,
        Deb(name=f"linux-image-{release}", version="6.12.94-1"),
        Deb(name="linux-headers-6.12.94+deb13-common", version="6.12.94-1", arch="all"),
        Deb(name="linux-kbuild-6.12.94+deb13", version="6.12.94-1", depends="libc6, pahole"),
        Deb(name="linux-headers-6.12-cloud-amd64", version="6.12.94-1", depends=f"linux-headers-{release}"),
        Deb(name="linux-image-6.12-cloud-amd64", version="6.12.94-1", depends=f"linux-image-{release}"),
    ]
    archive.publish("bookworm", {"main": debs})
    row = sample_matrix().rows[0]
    line = row.kernels[0].model_copy(update={"releases": "6.12.*"})
    catalogue = new_index()
    read_packages(
        fetcher(tmp_path / "cache"),
        read_suite(fetcher(tmp_path / "cache"), location(archive), now=NOW),
        "amd64",
        catalogue,
    )
    (kernel,) = find_kernels(catalogue, row.model_copy(update={"kernels": (line,)}), "amd64").found
    assert kernel.release.text == release
    assert [package.name for package in kernel.headers] == [
        "linux-headers-6.12.94+deb13-cloud-amd64",
        "linux-headers-6.12.94+deb13-common",
        "linux-kbuild-6.12.94+deb13",
    ]
    assert kernel.compiler == "gcc-14"
    assert [requirement.name for requirement in kernel.links] == ["libc6", "pahole"]


def test_headers_half_way_through_an_update(archive: Archive, tmp_path: Path) -> None:
    debs = [
        Deb(name=f"linux-headers-{OLD}", version="1", depends="linux-headers-6.1.0-50-common (= 1)"),
        Deb(name=f"linux-image-{OLD}", version="1"),
    ]
    archive.publish("bookworm", {"main": debs})
    catalogue = new_index()
    read_packages(
        fetcher(tmp_path / "cache"),
        read_suite(fetcher(tmp_path / "cache"), location(archive), now=NOW),
        "amd64",
        catalogue,
    )
    kernels = find_kernels(catalogue, sample_matrix().rows[0], "amd64")
    assert kernels.found == ()
    assert [release.text for release in kernels.without_headers] == [OLD]


def test_a_machines_configuration_is_read_from_its_root(tmp_path: Path, key: SigningKey) -> None:
    etc = tmp_path / "etc"
    parts = etc / "apt/sources.list.d"
    parts.mkdir(parents=True)
    (etc / "apt/trusted.gpg.d").mkdir()
    shutil.copy(key.keyring, etc / "apt/trusted.gpg.d/site.gpg")
    (etc / "os-release").write_text('ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n')
    (etc / "apt/mirrors.list").write_text(
        "# nearest first\nhttp://near.site/debian/ priority:1\nhttp://far.site/debian\n"
    )
    (parts / "cloud.sources").write_text(
        "Types: deb\nURIs: mirror+file:///etc/apt/mirrors.list\nSuites: bookworm\nComponents: main\n"
    )
    (parts / "broken.sources").write_text("Types\n")
    (etc / "apt/sources.list").write_text("deb http://security.site/debian-security bookworm-security main\n")
    machine = read_machine(tmp_path)
    assert (machine.id, machine.codename) == ("debian", "bookworm")
    assert [source.uri for source in machine.sources] == [
        "http://security.site/debian-security",
        "http://near.site/debian",
    ]
    assert machine.trusted == (etc / "apt/trusted.gpg.d/site.gpg",)


def test_the_distributions_own_file_goes_before_what_vendors_put_beside_it(tmp_path: Path) -> None:
    parts = tmp_path / "etc/apt/sources.list.d"
    parts.mkdir(parents=True)
    (tmp_path / "etc/os-release").write_text("ID=debian\nVERSION_CODENAME=bookworm\n")
    (parts / "a-vendor.list").write_text("deb https://vendor.site/apt bookworm main\n")
    (parts / "debian.sources").write_text(
        "Types: deb\nURIs: http://near.site/debian\nSuites: bookworm\nComponents: main contrib\n"
    )
    found = read_machine(tmp_path).find("debian", "bookworm", "bookworm-backports", "main")
    assert found is not None
    assert (found.uri, found.components) == ("http://near.site/debian", ("main", "contrib"))


def test_a_machine_without_apt(tmp_path: Path) -> None:
    assert read_machine(tmp_path).sources == ()


def test_dates_are_utc(archive: Archive, tmp_path: Path) -> None:
    archive.publish(
        "bookworm", {"main": DEBS}, date=datetime(2026, 11, 20, 13, tzinfo=timezone(timedelta(hours=1)))
    )
    assert read_suite(fetcher(tmp_path / "cache"), location(archive), now=NOW).release.date == EPOCH
