"""Two runs of `driverforge lock` at the same time, with one cache and with one lock file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

import pytest

from driverforge_build import cli
from driverforge_build.discover.settings import Settings
from driverforge_build.discover.survey import survey
from driverforge_build.fetch.cache import Cache
from driverforge_build.fetch.fetcher import Fetcher
from driverforge_build.fetch.web import mirror_transport
from driverforge_build.lock.file import dump_lock, load_lock
from driverforge_build.lock.pins import Lock, TargetLock
from support.process import missing
from support.samples.aptrepo import Archive, SigningKey, served, signing_key
from support.samples.sampledebian import NEW, OLD, publish, sample_matrix, write_matrix

PROGRAMS = ("gpg", "gpgv", "dpkg-deb")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "k") as made:
        yield made


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> Archive:
    folder = tmp_path_factory.mktemp("mirror")
    debian = Archive(folder / "debian", key)
    publish(debian, Archive(folder / "debian-security", key))
    return debian


class OtherRun(Cache):
    """A cache that another run uses too: it removes each package of headers once, right after we have
    downloaded it.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.removed: list[Path] = []

    @contextmanager
    def new_blob(self, sha256: Callable[[], str]) -> Iterator[IO[bytes]]:
        with super().new_blob(sha256) as file:
            yield file
        path = self.blob_path(sha256())
        if path not in self.removed and path.read_bytes().startswith(b"!<arch>"):
            self.removed.append(path)
            path.unlink()


def test_a_package_that_another_run_removed_is_downloaded_once_more(tmp_path: Path, archive: Archive) -> None:
    matrix = sample_matrix()
    other = OtherRun(tmp_path)
    settings = Settings(
        now=datetime.now(timezone.utc),
        mirrors={"debian12": archive.url},
        keyrings=[("", archive.key.keyring)],
    )
    ours = Fetcher(other, mirror_transport({}, lambda *_: None))
    found = survey(matrix, [(matrix.rows[0], "amd64")], Lock(), ours, settings)
    target = found.targets["debian12-amd64"]
    assert len(other.removed) == 2
    breaks = {
        release: [fact.breaks for fact in target.facts(kernel).values()]
        for release, kernel in target.kernels.items()
    }
    assert breaks == {OLD: [False], NEW: [True]}


def test_targets_that_another_run_wrote_meanwhile_stay(tmp_path: Path, archive: Archive) -> None:
    lock = tmp_path / "site.lock.json"
    theirs = Lock(targets={"debian13-amd64": TargetLock(os="debian13", arch="amd64")})

    def write(_: str) -> None:
        lock.write_text(dump_lock(theirs))

    words = [
        "lock",
        "--matrix",
        str(write_matrix(tmp_path)),
        "--lock",
        str(lock),
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    with served(archive.folder.parent) as server:
        server.before = write
        words += ["--keyring", str(archive.key.keyring), "--mirror", f"debian12={server.url}/debian"]
        assert cli.run(words) == 0
    assert sorted(load_lock(lock).targets) == ["debian12-amd64", "debian13-amd64"]
