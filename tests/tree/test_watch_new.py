"""`driverforge watch` on a small Debian, with a server that stands in for NVIDIA's list of releases."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from driverforge_build import cli
from support.jsonschemas import check_document
from support.process import missing
from support.samples.aptrepo import Archive, Deb, Served, SigningKey, served, signing_key
from support.samples.nvidiasite import RELEASES, publish_releases
from support.samples.sampledebian import BASE, DRIVER_PARTS, MATRIX, NEW, publish, write_matrix

PROGRAMS = ("gpg", "gpgv", "dpkg-deb")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)

KNOWN = {"535": ("lts branch", [("535.247.01", "2025-04-17"), ("535.261.03", "2025-07-17")])}


@dataclass(slots=True)
class Site:
    """A matrix and its lock, and one server for its two Debian archives and NVIDIA's hosts."""

    folder: Path
    archive: Archive
    security: Archive
    server: Served
    capture: pytest.CaptureFixture[str]

    def run(self, command: str, *arguments: str) -> tuple[int, str]:
        words = [command, "--matrix", str(self.folder / "site.yaml"), *arguments]
        words += ["--lock", str(self.folder / "l.json"), "--cache-dir", str(self.folder / "cache")]
        words += ["--keyring", str(self.archive.key.keyring), "--mirror", f"nvidia={self.server.url}"]
        status = cli.run([*words, "--mirror", f"debian12={self.server.url}/debian"])
        captured = self.capture.readouterr()
        return status, captured.out if "--json" in arguments else captured.out + captured.err

    def document(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Exit status and what `--json` prints, which the published schema accepts."""
        status, text = self.run("watch", "--json", *arguments)
        document = json.loads(text)
        check_document("watch", document)
        assert document["new"] == (status == 1)
        return status, document


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "k") as made:
        yield made


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> Path:
    """The day of the lock: the security archive has no kernel yet."""
    folder = tmp_path_factory.mktemp("site")
    publish(Archive(folder / "debian", key), Archive(folder / "debian-security", key), newest=False)
    publish_releases(folder, KNOWN)
    return folder


@pytest.fixture
def site(
    tmp_path: Path, key: SigningKey, published: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Site]:
    """Locked on that day."""
    write_matrix(tmp_path)
    shutil.copytree(published, tmp_path / "srv")
    archives = (Archive(tmp_path / "srv" / name, key) for name in ("debian", "debian-security"))
    with served(tmp_path / "srv") as server:
        made = Site(tmp_path, *archives, server, capsys)
        assert made.run("lock")[0] == 0
        yield made


def fresh(site: Site) -> None:
    """What changed within a second is the same to If-Modified-Since: forget what was seen."""
    shutil.rmtree(site.folder / "cache/documents")


def test_nothing_is_new_on_the_day_of_the_lock(site: Site) -> None:
    status, told = site.run("watch")
    assert (status, told) == (0, "nothing is new since 2026-11-20T12:00:00Z\n")
    document = site.document()[1]
    found = document["targets"]["debian12-amd64"]
    assert (found["kernels"], found["gone"], found["modules"]) == ([], [], [])
    assert (found["state"], document["releases"]["state"]) == ("fresh", "fresh")
    assert {one["state"] for one in found["read"].values()} == {"fresh"}


def test_new_kernels_are_told_and_nothing_is_written(site: Site) -> None:
    before = (site.folder / "l.json").read_bytes()
    publish(site.archive, site.security)
    fresh(site)
    status, told = site.run("watch")
    assert (status, told) == (1, f"debian12-amd64: kernel {NEW} is new\n")
    assert site.document()[1]["targets"]["debian12-amd64"]["kernels"] == [NEW]
    assert (site.folder / "l.json").read_bytes() == before
    assert site.run("lock")[0] == 0
    assert site.run("watch")[0] == 0


def test_known_vulnerabilities_of_a_locked_driver_are_told_by_files(site: Site) -> None:
    advisories = ("--advisories", str(Path(__file__).parents[1] / "cases/advisories"))
    status, told = site.run("watch", *advisories)
    assert status == 1
    assert told == (
        "driver 535.261.03 has 3 known vulnerabilities, the worst CVE-2026-24187 (8.8): 535.309.01 has none "
        "of them (NVIDIA's bulletin 5821)\n"
    )
    found = site.document(*advisories)[1]["vulnerable"]["535.261.03"]
    assert found[0] == {"cve": "CVE-2026-24187", "score": 8.8, "fixed": "535.309.01", "bulletin": "5821"}
    # nothing is asked: a place that is none is refused before a mirror is
    assert site.run("watch", "--advisories", str(site.folder / "l.json"))[0] == 65


def test_kernels_that_are_gone_are_news_and_no_degraded_discovery(site: Site) -> None:
    publish(site.archive, site.security)
    fresh(site)
    assert site.run("lock")[0] == 0
    shutil.rmtree(site.security.folder)
    publish(site.archive, site.security, newest=False)
    fresh(site)
    status, document = site.document()
    assert (status, document["targets"]["debian12-amd64"]["gone"]) == (1, [NEW])


def test_new_drivers_and_branches_are_told(site: Site) -> None:
    old = {"525": ("", [("525.147.05", "2023-10-31")]), "570": ("production branch", [("570.211.01", "")])}
    new = {
        "535": ("lts branch", [("535.309.01", "2026-04-23"), ("535.261.03", "2025-07-17")]),
        "620": ("new feature branch", [("620.31.02", "2026-11-09")]),
    }
    publish_releases(site.folder / "srv", {**old, **new})
    status, told = site.run("watch")
    assert (status, told.splitlines()[:4]) == (
        1,
        [
            "driver 535.309.01 of 2026-04-23 (lts branch) is new: the matrix has 535.261.03",
            "branch 570 is new: 570.211.01 (production branch)",
            "branch 620 is new: 620.31.02 of 2026-11-09 (new feature branch); open modules only",
            "to have them, in a matrix of yours (look up module types, GPUs and CUDA at NVIDIA's):",
        ],
    )
    document = site.document()[1]
    assert "\n".join(told.splitlines()[4:]) == document["rows"]
    assert [(one["version"], one["known"]) for one in document["drivers"]] == [("535.309.01", "535.261.03")]
    assert [(one["branch"], one["open_only"]) for one in document["branches"]] == [
        ("570", False),
        ("620", True),
    ]


def test_a_locked_driver_that_the_repositories_have_in_another_version_is_news(site: Site) -> None:
    parts = [Deb(name=part.name, version="535.274.02-1", depends="libc6") for part in DRIVER_PARTS]
    shutil.rmtree(site.archive.folder)
    site.archive.publish("bookworm", {"main": list(BASE), "non-free": parts})
    fresh(site)
    status, document = site.document()
    assert status == 1
    (problem,) = document["problems"].values()
    assert "535.274.02" in str(problem["details"])


def test_an_end_of_life_is_news_once(site: Site) -> None:
    """The lock is of 2026-11-20; a branch that ended before it was known then."""
    assert site.document()[1]["ended"] == []
    lock = site.folder / "l.json"
    lock.write_text(lock.read_text().replace("2026-11-20T", "2025-05-20T"))
    write_matrix(site.folder, MATRIX.replace("date: 2026-06", "date: 2025-06"))
    status, document = site.document()
    assert status == 1
    assert document["ended"] == [{"branch": "535", "eol": "2025-06 (a page)"}]


def test_who_does_not_answer_is_told_beside_what_is_new(site: Site) -> None:
    site.server.broken[f"/{RELEASES}"] = 404
    status, document = site.document()
    assert (status, len(document["unanswered"])) == (75, 1)
    status, told = site.run("watch")
    assert (status, "as far as could be asked" in told) == (75, True)
    publish(site.archive, site.security)
    fresh(site)
    assert site.document()[0] == 1
    site.server.broken["*"] = 503
    site.server.later = "3600"
    status, document = site.document()
    assert (status, len(document["unanswered"])) == (75, 2)


def test_what_was_seen_is_told_from_the_cache(site: Site) -> None:
    publish(site.archive, site.security)
    fresh(site)
    assert "the cache holds" not in site.run("watch")[1]
    status, document = site.document()
    assert status == 1
    seen = {**document["targets"]["debian12-amd64"]["read"], "releases": document["releases"]}
    site.server.broken["*"] = 503
    status, document = site.document("--offline")
    assert (status, document["unanswered"]) == (1, [])
    found = document["targets"]["debian12-amd64"]
    assert (found["kernels"], found["state"]) == ([NEW], "stale")
    stale = {name: {"state": "stale", "time": one["time"]} for name, one in seen.items()}
    assert {**found["read"], "releases": document["releases"]} == stale
    oldest = min(one["time"] for one in seen.values())
    last = f"nobody was asked: this is what the cache holds, read {oldest}"
    assert site.run("watch", "--offline")[1].splitlines()[-1] == last


def test_a_list_of_releases_that_cannot_be_had_has_no_date(site: Site) -> None:
    site.server.broken[f"/{RELEASES}"] = 404
    assert site.document()[1]["releases"] is None


def test_a_system_that_was_never_locked_names_the_command(site: Site) -> None:
    (site.folder / "l.json").write_text('{"schema": 1, "targets": {}}')
    status, told = site.run("watch")
    assert (status, "driverforge lock --matrix" in told) == (65, True)
