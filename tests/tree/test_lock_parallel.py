"""Two runs of `driverforge lock` at the same time, with one cache and with one lock file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.discover.settings import Settings
from driverforge_build.discover.survey import survey
from driverforge_build.fetch.fetcher import Quiet
from driverforge_build.lock.file import dump_lock, load_lock
from driverforge_build.lock.pins import Lock, TargetLock
from support.fakes.mirror import fetcher
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


class OtherRun(Quiet):
    """Another run with the same cache: it removes each package of headers once, right after we have
    downloaded it.
    """

    def __init__(self, cache: Path) -> None:
        self.removed: list[str] = []
        self._cache = cache

    @contextmanager
    def download(self, name: str, total: int) -> Iterator[Callable[[int], object]]:
        yield lambda _: None
        self._after(name)

    def _after(self, name: str) -> None:
        if name.endswith(".deb") and name not in self.removed:
            self.removed.append(name)
            for path in self._cache.glob("blobs/sha256/*/[!.]*"):
                # the survey's other threads remove what they have read
                with suppress(FileNotFoundError):
                    if path.read_bytes().startswith(b"!<arch>"):
                        path.unlink()


def test_a_package_that_another_run_removed_is_downloaded_once_more(tmp_path: Path, archive: Archive) -> None:
    matrix = sample_matrix()
    other = OtherRun(tmp_path)
    settings = Settings(
        now=datetime.now(timezone.utc),
        mirrors={"debian12": archive.url},
        keyrings=[("", archive.key.keyring)],
    )
    found = survey(matrix, [(matrix.rows[0], "amd64")], Lock(), fetcher(tmp_path, progress=other), settings)
    target = found.targets["debian12-amd64"]
    assert sorted(name.partition("_")[0] for name in other.removed) == [
        f"linux-headers-6.1.0-{abi}-common" for abi in (50, 53)
    ]
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
