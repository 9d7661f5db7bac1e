"""`driverforge lock` and NVIDIA's archives: a server with NVIDIA's paths stands in for NVIDIA's hosts.

The archives are miniatures, their checksum files and manifests are true of them.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.lock.file import load_lock
from driverforge_build.lock.pins import LockedArchive, Origin
from support.jsonschemas import check_document
from support.process import missing
from support.samples.aptrepo import Archive, Served, SigningKey, served, signing_key
from support.samples.nvidiasite import (
    REDIST,
    common,
    data_centre,
    publish_common,
    publish_redistributable,
    redistributable,
    sha256,
)
from support.samples.runfile import write_redistributable, write_runfile
from support.samples.sampledebian import MATRIX, publish, write_matrix

PROGRAMS = ("gpg", "gpgv", "dpkg-deb")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)

VERSION = "535.309.01"
KEY = f"{VERSION}-amd64"
CELL = f"debian12-amd64-{VERSION}-jit"
LONG_AGO = "2026-01-01T00:00:00Z"
ROW = """\
    drivers:
      - id: "535"
        branch: "535"
        version: 535.309.01
        payload: runfile
        module_types: [open, proprietary]
        url: "https://us.download.nvidia.com/tesla/{version}/NVIDIA-Linux-{machine}-{version}.run"
"""
HEAD, _, REST = MATRIX.partition("    drivers:\n      - id")
ONLY_RUNFILE = (HEAD + ROW + REST[REST.index("  - id: ubuntu24.04") :]).replace(
    "newest: 535.261.03", "newest: 535.309.01"
)


@dataclass(slots=True)
class Site:
    """A matrix with one runfile, its Debian, and a folder that is served in the place of NVIDIA's hosts."""

    folder: Path
    debian: str
    keyring: Path
    server: Served
    out: pytest.CaptureFixture[str]
    words: list[str] = field(default_factory=list)

    @property
    def nvidia(self) -> Path:
        return self.folder / "nvidia"

    @property
    def lock(self) -> Path:
        return self.folder / "site.lock.json"

    def run(self, command: str, *arguments: str) -> tuple[int, str]:
        """Exit status, and everything that was printed."""
        words = [command, "--matrix", str(self.folder / "site.yaml"), "--lock", str(self.lock), *arguments]
        if command == "lock":
            words += ["--cache-dir", str(self.folder / "cache"), "--keyring", str(self.keyring)]
            words += ["--mirror", f"debian12={self.debian}", "--mirror", f"nvidia={self.server.url}"]
        status = cli.run(words)
        captured = self.out.readouterr()
        return status, captured.out + captured.err

    @property
    def pin(self) -> LockedArchive | None:
        return load_lock(self.lock).archives.get(KEY)

    @property
    def asked(self) -> list[str]:
        return [line.removeprefix("GET ") for line in self.server.requests]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "k") as made:
        yield made


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> str:
    folder = tmp_path_factory.mktemp("mirror")
    publish(Archive(folder / "debian", key), Archive(folder / "debian-security", key))
    return Archive(folder / "debian", key).url


@pytest.fixture
def site(tmp_path: Path, key: SigningKey, debian: str, capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    write_matrix(tmp_path, ONLY_RUNFILE)
    (tmp_path / "nvidia").mkdir()
    with served(tmp_path / "nvidia") as server:
        yield Site(tmp_path, debian, key.keyring, server, capsys)


def test_a_sum_out_of_the_cache_is_told_as_such(site: Site) -> None:
    publish_common(site.nvidia, VERSION)
    with served(Path(site.debian.removeprefix("file://")).parent) as mirror:
        site.debian = f"{mirror.url}/debian"
        asked = json.loads(site.run("lock", "--json")[1])["archives"][KEY]["read"]
        assert asked["state"] == "fresh"
        assert "the cache holds" not in site.run("lock", "--check")[1]
        document = json.loads(site.run("lock", "--offline", "--check", "--json")[1])
        told = site.run("lock", "--offline", "--check")[1]
    check_document("lock-report", document)
    kept = document["archives"][KEY]["read"]
    assert (kept["state"], kept["time"] >= asked["time"]) == ("stale", True)
    assert f".sha256sum says: what the cache holds, read {kept['time']}\n" in told


def test_the_oldest_copy_may_be_of_a_sum(site: Site) -> None:
    publish_common(site.nvidia, VERSION)
    with served(Path(site.debian.removeprefix("file://")).parent) as mirror:
        site.debian = f"{mirror.url}/debian"
        site.run("lock")
        for path in (site.folder / "cache/documents").iterdir():
            head, _, body = path.read_bytes().partition(b"\n")
            if common(VERSION).rpartition("/")[2].encode() in body:
                path.write_bytes(json.dumps({**json.loads(head), "read": LONG_AGO}).encode() + b"\n" + body)
        told = site.run("lock", "--offline", "--check")[1]
    assert f"is up to date, by what the cache holds, read {LONG_AGO}\n" in told


def test_a_sum_of_the_matrix_is_nobodys_answer(site: Site) -> None:
    row = ROW.replace("        url:", f'        sha256: {{amd64: "{"a" * 64}"}}\n        url:')
    write_matrix(site.folder, ONLY_RUNFILE.replace(ROW, row))
    document = json.loads(site.run("lock", "--json")[1])
    check_document("lock-report", document)
    assert document["archives"][KEY]["read"] is None
    told = site.run("lock", "--check")[1]
    assert f"archive {KEY}: sha256 {'a' * 64}, as the matrix says: `sha256:` of the driver's row\n" in told


def test_the_checksum_file_beside_the_common_runfile_pins_it(site: Site) -> None:
    path = publish_common(site.nvidia, VERSION)
    publish_redistributable(site.nvidia, VERSION)
    status, told = site.run("lock")
    assert status == 0, told
    url = f"https://download.nvidia.com/{common(VERSION)}"
    assert site.pin == LockedArchive(
        version=VERSION,
        arch="amd64",
        url=url,
        sha256=sha256(path),
        size=0,
        origin=Origin.CHECKSUM_FILE,
        source=f"{url}.sha256sum",
    )
    assert f"archive {KEY}: sha256 {sha256(path)}, as {url}.sha256sum says" in told
    # a checksum beside the row's own file would do first; no archive is downloaded
    assert site.asked == [f"/{data_centre(VERSION)}.sha256sum", f"/{common(VERSION)}.sha256sum"]
    assert site.run("plan", "--select", CELL)[1].split()[1] == "build"
    told = site.run("explain", CELL)[1]
    assert f"archive: {url}\n" in told
    assert f"sha256 {sha256(path)}, as {url}.sha256sum says\n" in told


def test_the_manifest_of_the_redistributable_archives_serves_where_there_is_no_common_runfile(
    site: Site,
) -> None:
    path = publish_redistributable(site.nvidia, VERSION)
    assert site.run("lock")[0] == 0
    assert site.pin is not None
    assert (site.pin.origin, site.pin.sha256) == (Origin.MANIFEST, sha256(path))
    assert site.pin.url == f"https://developer.download.nvidia.com/{redistributable(VERSION)}"
    assert site.pin.size == path.stat().st_size


def test_a_second_lock_changes_nothing_and_asks_about_the_pinned_file_alone(site: Site) -> None:
    publish_redistributable(site.nvidia, VERSION)
    site.run("lock")
    before = site.lock.read_bytes()
    publish_common(site.nvidia, VERSION)
    site.server.requests.clear()
    status, told = site.run("lock", "--check")
    assert (status, site.lock.read_bytes()) == (0, before), told
    assert site.asked == [f"/{REDIST}/redistrib_{VERSION}.json"]


def test_without_a_published_sum_a_person_has_to_decide(site: Site) -> None:
    write_runfile(site.nvidia / data_centre(VERSION), VERSION)
    status, told = site.run("lock")
    assert (status, site.pin) == (0, None)
    assert f"archive {KEY}: error: NVIDIA's archive {VERSION} for amd64 is not pinned" in told
    assert f"https://download.nvidia.com/{common(VERSION)}.sha256sum" in told
    assert "HTTP 404" in told
    status, told = site.run("explain", CELL)
    assert f"--select 'debian12-amd64-{VERSION}-*'   (asks NVIDIA for its sha256" in told
    assert "--trust-first-use" in told


def test_an_archive_that_nobody_asked_for_is_one_for_lock_to_ask_about(site: Site) -> None:
    """A run for another driver pins this one's packages, and not its archive."""
    other = (
        ROW.removeprefix("    drivers:\n").replace('id: "535"', "id: older").replace(VERSION, "535.308.01")
    )
    other = other.replace("        url:", "        variants: [jit]\n        url:")
    write_matrix(site.folder, ONLY_RUNFILE.replace(ROW, ROW + other))
    publish_common(site.nvidia, VERSION)
    status, told = site.run("lock", "--select", "debian12-amd64-535.308.01-*")
    assert status == 0, told
    assert (site.pin, any(VERSION in path for path in site.asked)) == (None, False)
    plan = json.loads(site.run("plan", "--select", CELL, "--json")[1])["cells"][0]
    assert (plan["verdict"], "no published" in plan["reason"]) == ("unknown", False)
    words = shlex.split(plan["run"].partition("   (")[0])[1:]
    assert "--trust-first-use" not in words
    assert site.run(*words)[0] == 0
    assert site.pin is not None


def test_trust_on_first_use_is_recorded_with_day_size_and_address(site: Site) -> None:
    path = site.nvidia / data_centre(VERSION)
    write_runfile(path, VERSION)
    site.run("lock")
    status, told = site.run("lock", "--select", f"debian12-amd64-{VERSION}-*", "--trust-first-use")
    assert status == 0, told
    pin = site.pin
    assert pin is not None
    assert (pin.origin, pin.sha256, pin.size) == (Origin.FIRST_USE, sha256(path), path.stat().st_size)
    assert pin.url == f"https://us.download.nvidia.com/{data_centre(VERSION)}"
    assert len(pin.date) == 10
    assert f"trusted at its first download on {pin.date}, {pin.size} bytes from {pin.url}" in told
    before = site.lock.read_bytes()
    site.server.requests.clear()
    assert site.run("lock", "--trust-first-use")[0] == 0
    assert site.lock.read_bytes() == before
    assert f"/{data_centre(VERSION)}" not in site.asked
    # NVIDIA's own word is worth more, where it is the same
    publish_common(site.nvidia, VERSION)
    assert site.run("lock")[0] == 0
    assert site.pin is not None
    assert (site.pin.origin, site.pin.date) == (Origin.CHECKSUM_FILE, "")


@pytest.mark.parametrize(
    ("content", "evidence"),
    [
        (b"<html>Please log in</html>", "it is no archive of NVIDIA's driver: 26 bytes, sha256 "),
        (b"", "it is no archive of NVIDIA's driver: 0 bytes"),
        (None, "it is 550.163.01 for amd64"),
    ],
)
def test_what_is_another_file_is_never_trusted(site: Site, content: bytes | None, evidence: str) -> None:
    path = site.nvidia / data_centre(VERSION)
    write_runfile(path, "550.163.01")
    if content is not None:
        path.write_bytes(content)
    status, told = site.run("lock", "--trust-first-use")
    assert (status, site.lock.exists()) == (1, False)
    assert evidence in told


def test_the_archive_of_another_architecture_is_never_trusted(site: Site) -> None:
    write_runfile(site.nvidia / data_centre(VERSION), VERSION, "aarch64")
    status, told = site.run("lock", "--trust-first-use")
    assert (status, site.lock.exists()) == (1, False)
    assert f"it is {VERSION} for arm64" in told


def test_a_first_download_that_is_not_there_is_a_problem(site: Site) -> None:
    status, told = site.run("lock", "--trust-first-use", "--keep-going")
    assert (status, site.pin) == (1, None)
    assert f"the mirror has no {site.server.url}/{data_centre(VERSION)}" in told


@pytest.mark.parametrize("write", [write_runfile, write_redistributable])
def test_an_archive_on_disk_is_known_by_what_is_inside(site: Site, write: type[write_runfile]) -> None:
    path = site.folder / "download (1)"
    write(path, VERSION)
    status, told = site.run("lock", "--archive", str(path))
    assert status == 0, told
    pin = site.pin
    assert pin is not None
    assert (pin.origin, pin.sha256, pin.source) == (Origin.FILE, sha256(path), "download (1)")
    assert f"of the file download (1) given on {pin.date}" in told
    runfile = write is write_runfile
    assert pin.name == Path(data_centre(VERSION) if runfile else redistributable(VERSION)).name
    before = site.lock.read_bytes()
    assert site.run("lock")[0] == 0
    assert site.lock.read_bytes() == before
    assert site.run("plan", "--select", CELL)[1].split()[1] == "build"


def test_an_archive_on_disk_that_is_the_published_one_is_pinned_as_published(site: Site) -> None:
    path = publish_common(site.nvidia, VERSION)
    assert site.run("lock", "--archive", str(path))[0] == 0
    assert site.pin is not None
    assert site.pin.origin is Origin.CHECKSUM_FILE


def test_an_archive_on_disk_that_is_not_the_published_one_is_refused(site: Site) -> None:
    published = publish_common(site.nvidia, VERSION)
    mine = site.folder / "mine.run"
    mine.write_bytes(published.read_bytes() + b"and more")
    status, told = site.run("lock", "--archive", str(mine))
    assert (status, site.lock.exists()) == (1, False)
    assert sha256(mine) in told
    assert sha256(published) in told


def test_an_archive_of_another_driver_is_refused_before_repositories_are_read(site: Site) -> None:
    path = site.folder / "other.run"
    write_runfile(path, "550.163.01")
    status, told = site.run("lock", "--archive", str(path))
    assert status == 64
    assert "is the driver 550.163.01 for amd64, which no selected cell takes" in told
    assert f"wanted: {KEY}" in told
    path.write_text("hello")
    status, told = site.run("lock", "--archive", str(path))
    assert (status, "is no archive of NVIDIA's driver" in told) == (65, True)


def test_a_published_sum_that_changes_is_an_error_that_names_both(site: Site) -> None:
    path = publish_common(site.nvidia, VERSION)
    site.run("lock")
    before, first = site.lock.read_bytes(), sha256(path)
    other = "0" * 64
    checksum = path.with_name(f"{path.name}.sha256sum")
    checksum.write_text(f"{other}  {path.name}\n")
    # what changed within a second is the same to If-Modified-Since
    os.utime(checksum, (2_000_000_000, 2_000_000_000))
    for words in ((), ("--keep-going",), ("--trust-first-use",)):
        status, told = site.run("lock", *words)
        assert (status, site.lock.read_bytes()) == (1, before)
        assert f"NVIDIA's archive {KEY} has another sha256" in told
        assert first in told
        assert other in told
    status, told = site.run("lock", "--accept-archive", f"{KEY}=NVIDIA replaced it, ticket 7")
    assert status == 0, told
    assert site.pin is not None
    assert site.pin.sha256 == other
    assert site.pin.accepted == f"NVIDIA replaced it, ticket 7 (before: sha256 {first})"
    before = site.lock.read_bytes()
    assert site.run("lock")[0] == 0
    assert site.lock.read_bytes() == before


def test_a_row_whose_sum_is_not_the_locks_is_an_error_that_names_both(site: Site) -> None:
    first = sha256(publish_common(site.nvidia, VERSION))
    site.run("lock")
    own = f'        sha256: {{amd64: "{"1" * 64}"}}\n'
    write_matrix(site.folder, ONLY_RUNFILE.replace(ROW, ROW + own))
    status, told = site.run("lock")
    assert status == 1
    assert first in told
    assert f"{'1' * 64}  as the matrix says" in told


def test_a_row_with_its_own_sum_asks_nobody(site: Site) -> None:
    own = f'        sha256: {{amd64: "{"1" * 64}"}}\n'
    write_matrix(site.folder, ONLY_RUNFILE.replace(ROW, ROW + own))
    status, told = site.run("lock")
    assert (status, site.pin, site.asked) == (0, None, [])
    assert f"archive {KEY}: sha256 {'1' * 64}, as the matrix says" in told
    assert site.run("plan", "--select", CELL)[1].split()[1] == "build"


@pytest.mark.parametrize(
    "hostile",
    [
        b"<!DOCTYPE html><title>Welcome to the airport</title>",
        b"0" * 64 + b"  NVIDIA-Linux-x86_64-535.309.02.run\n",
        b"\0" * (17 << 20),
        b"\xff\xfe",
    ],
    ids=["a web page", "a sum for another file", "without an end", "no text"],
)
def test_a_hostile_checksum_file_is_none(site: Site, hostile: bytes) -> None:
    path = publish_common(site.nvidia, VERSION)
    path.with_name(f"{path.name}.sha256sum").write_bytes(hostile)
    status, told = site.run("lock")
    assert (status, site.pin) == (0, None)
    assert "is not pinned" in told
    assert f"https://download.nvidia.com/{common(VERSION)}.sha256sum: " in told


def test_a_refusal_leads_to_the_next_place_and_is_told(site: Site) -> None:
    publish_common(site.nvidia, VERSION)
    publish_redistributable(site.nvidia, VERSION)
    site.server.broken[f"/{common(VERSION)}.sha256sum"] = 403
    assert site.run("lock", "--json")[0] == 0
    assert site.pin is not None
    assert site.pin.origin is Origin.MANIFEST


def test_a_place_that_does_not_answer_is_degraded_and_nothing_is_trusted_meanwhile(site: Site) -> None:
    write_runfile(site.nvidia / data_centre(VERSION), VERSION)
    site.server.broken[f"/{common(VERSION)}.sha256sum"] = 503
    site.server.later = "3600"
    status, told = site.run("lock", "--trust-first-use", "--json")
    assert (status, site.pin) == (75, None)
    found = json.loads(told[told.index("{\n") :])["archives"][KEY]
    assert found["pinned"] is False
    assert found["error"]["exit_status"] == 75
    # what is pinned is not in danger
    site.server.broken.clear()
    publish_redistributable(site.nvidia, VERSION)
    assert site.run("lock")[0] == 0
    site.server.broken["*"] = 503
    assert site.run("lock", "--check")[0] == 0


def test_an_accepted_archive_that_nobody_asked_for_is_refused(site: Site) -> None:
    status, told = site.run("lock", "--accept-archive", "550.163.01-amd64=why not")
    assert status == 64
    assert "--accept-archive names 550.163.01-amd64" in told
    assert site.run("lock", "--accept-archive", KEY)[0] == 64


def test_an_unknown_host_of_nvidias_is_refused(site: Site) -> None:
    status, told = site.run("lock", "--mirror", "nvidia/nvidia.com=http://m")
    assert (status, "asks no such host" in told) == (64, True)
