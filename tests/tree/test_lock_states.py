"""What a mirror can do wrong: one clear error each, for apt and for RPM, never a shorter list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import httpx2
import pytest

from driverforge_build.discover.settings import Nowhere, Settings
from driverforge_build.discover.survey import Target, survey
from driverforge_build.lock.pins import Lock, TargetLock
from driverforge_build.matrix.load import Matrix
from driverforge_build.matrix.model import OsRow
from driverforge_core.errors import DriverforgeError
from support.fakes.mirror import fetcher
from support.process import missing
from support.samples import suserepo
from support.samples.aptrepo import Archive, SigningKey, signing_key
from support.samples.sampledebian import MATRIX, publish, sample_matrix
from support.samples.suserepo import BCI, suse_matrix

PROGRAMS = ("createrepo_c", "rpmbuild", "dpkg-deb", "gpg", "gpgv")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A kind of repositories, and the ends of the addresses of its signed file, its index and a package."""

    matrix: Matrix
    root: Path
    mirrors: dict[str, str]
    keyring: Path
    signed: str
    index: str
    package: str

    def surveyed(self, cache: Path, answer: Callable[[httpx2.Request], httpx2.Response]) -> TargetLock:
        settings = Settings(
            now=datetime.now(timezone.utc), mirrors=self.mirrors, keyrings=[("", self.keyring)]
        )
        row = self.matrix.rows[0]
        found = survey(self.matrix, [(row, "amd64")], Lock(), fetcher(cache, answer), settings)
        return found.targets[f"{row.id}-amd64"]

    def served(self, request: httpx2.Request) -> httpx2.Response:
        path = self.root / request.url.path.lstrip("/")
        return httpx2.Response(200, content=path.read_bytes()) if path.is_file() else httpx2.Response(404)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> dict[str, Site]:
    root = tmp_path_factory.mktemp("mirror")
    publish(Archive(root / "debian", key), Archive(root / "debian-security", key))
    suserepo.publish(root / "bci", BCI, key)
    return {
        "apt": Site(
            matrix=sample_matrix(),
            root=root,
            mirrors={"debian12": "http://m.site/debian"},
            keyring=key.keyring,
            signed="/dists/bookworm/InRelease",
            index="/bookworm/main/binary-amd64/",
            package="-common_6.1.176-1_all.deb",
        ),
        "rpm": Site(
            matrix=suse_matrix(),
            root=root,
            mirrors={"sles15.7/SLE_BCI": "http://m.site/bci"},
            keyring=key.keyring,
            signed="/repodata/repomd.xml",
            index="-primary.xml.gz",
            package="/kernel-devel-6.4.0-150700.51.1.noarch.rpm",
        ),
    }


def cut(whole: httpx2.Response) -> httpx2.Response:
    return httpx2.Response(200, content=whole.content[: len(whole.content) * 3 // 4])


def changed(whole: httpx2.Response) -> httpx2.Response:
    """Other bytes of the same length, in the middle: past the head that says what the file is."""
    middle = len(whole.content) // 2
    data = bytearray(whole.content)
    data[middle] ^= 1
    return httpx2.Response(200, content=bytes(data))


def endless(_: httpx2.Response) -> httpx2.Response:
    return httpx2.Response(200, stream=Endless())


class Endless(httpx2.SyncByteStream):
    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield bytes(1 << 16)


def status(code: int, headers: dict[str, str] | None = None) -> Callable[[httpx2.Response], httpx2.Response]:
    return lambda _: httpx2.Response(code, headers=headers or {})


def silent(_: httpx2.Response) -> httpx2.Response:
    raise httpx2.ReadTimeout("nothing came")


def portal(_: httpx2.Response) -> httpx2.Response:
    return httpx2.Response(200, content=b"<html><body>log in first</body></html>")


# what the mirror does -> the exit status and what the error says, for the signed file, the index, a package
NOT_SIGNED_FOR = "is not what the signed index says"
AROUND = {"location": "http://m.site/around"}
STATES: dict[str, tuple[Callable[[httpx2.Response], httpx2.Response], dict[str, tuple[int, str]]]] = {
    "changed": (changed, {"signed": (69, "changed|not signed"), "index": (75, NOT_SIGNED_FOR)}),
    "cut": (cut, {"signed": (69, "changed|not signed"), "index": (75, NOT_SIGNED_FOR)}),
    "endless": (endless, {"signed": (69, "sends more than 16 MiB"), "index": (75, NOT_SIGNED_FOR)}),
    "404": (status(404), {"signed": (69, "the mirror has no"), "index": (69, "the mirror has no")}),
    "403": (status(403), {"signed": (69, "refuses the request"), "index": (69, "refuses the request")}),
    "503": (status(503), {"signed": (75, "cannot be read now"), "index": (75, "is busy or broken")}),
    "circle": (status(302, AROUND), {"signed": (69, "redirect"), "index": (69, "redirect")}),
    "silent": (silent, {"signed": (75, "cannot be read now"), "index": (75, "sends nothing")}),
    "portal": (portal, {"signed": (69, "answers with a web page"), "index": (75, NOT_SIGNED_FOR)}),
}


@pytest.mark.parametrize("kind", ["apt", "rpm"])
@pytest.mark.parametrize("part", ["signed", "index", "package"])
@pytest.mark.parametrize("state", STATES)
def test_one_state_each(sites: dict[str, Site], tmp_path: Path, kind: str, part: str, state: str) -> None:
    site = sites[kind]
    does, told = STATES[state]
    ends = {"signed": site.signed, "index": site.index, "package": site.package}[part]

    def answer(request: httpx2.Request) -> httpx2.Response:
        whole = site.served(request)
        path = request.url.path
        if path == "/around":
            return does(whole)
        concerned = ends in path if part == "index" else path.endswith(ends)
        return does(whole) if concerned else whole

    with pytest.raises(DriverforgeError) as caught:
        site.surveyed(tmp_path, answer)
    exit_code, said = told["index" if part == "package" else part]
    error = caught.value
    assert error.exit_code == exit_code, error.render()
    assert any(word in error.render() for word in said.split("|")), error.render()
    assert error.resolution


@pytest.mark.parametrize("kind", ["apt", "rpm"])
def test_a_mirror_that_does_nothing_wrong(sites: dict[str, Site], tmp_path: Path, kind: str) -> None:
    assert len(sites[kind].surveyed(tmp_path, sites[kind].served).kernels) == 2


def test_a_system_that_nobody_trusted_signed_is_left_and_the_others_are_read(
    sites: dict[str, Site], tmp_path: Path
) -> None:
    site = sites["apt"]
    row = site.matrix.rows[0]
    other = row.model_copy(update={"id": "debian13"})
    with signing_key(tmp_path / "key") as stranger:
        publish(Archive(tmp_path / "debian", stranger), Archive(tmp_path / "debian-security", stranger))
    mirrors = {"debian12": (site.root / "debian").as_uri(), "debian13": (tmp_path / "debian").as_uri()}
    settings = Settings(now=datetime.now(timezone.utc), mirrors=mirrors, keyrings=[("", site.keyring)])
    targets = [(other, "amd64"), (row, "amd64")]
    found = survey(site.matrix, targets, Lock(), fetcher(tmp_path / "cache"), settings)
    assert list(found.targets) == ["debian12-amd64"]
    assert "InRelease of bookworm is not signed" in found.degraded["debian13-amd64"].brief


def test_a_target_whose_mirror_has_nothing_costs_no_other(sites: dict[str, Site], tmp_path: Path) -> None:
    site = sites["apt"]
    mirrors = {**site.mirrors, "ubuntu24.04": "http://m.site/nowhere"}
    settings = Settings(now=datetime.now(timezone.utc), mirrors=mirrors, keyrings=[("", site.keyring)])
    targets = [(row, "amd64") for row in site.matrix.rows]
    found = survey(site.matrix, targets, Lock(), fetcher(tmp_path, site.served), settings)
    assert (list(found.targets), list(found.problems)) == (["debian12-amd64"], ["ubuntu24.04-amd64"])


def test_a_repository_that_nobody_may_sign_for_is_no_empty_one(
    sites: dict[str, Site], tmp_path: Path
) -> None:
    site = sites["rpm"]
    settings = Settings(now=datetime.now(timezone.utc), mirrors=site.mirrors)
    targets = [(site.matrix.rows[0], "amd64")]
    with pytest.raises(Nowhere, match="nothing says who may sign"):
        survey(site.matrix, targets, Lock(), fetcher(tmp_path, site.served), settings)


def test_a_vendor_that_is_silent_is_waited_for_once_and_stops_no_system(
    sites: dict[str, Site], tmp_path: Path
) -> None:
    """NVIDIA has repositories of every system, on one host."""

    def matrix(name: str) -> Matrix:
        text = f"      - {{id: cuda, urls: ['http://cuda.site/{name}'], role: extra, keyring: /nowhere/k}}\n"
        text += "    fabric: [{id: '535', packages: [nvidia-fabricmanager-535]}]\n"
        return sample_matrix(MATRIX.replace("    kernels:\n", f"{text}    kernels:\n", 1))

    row = matrix("debian12").rows[0]
    other = matrix("debian13").rows[0].model_copy(update={"id": "debian13"})
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "cuda.site":
            asked.append(request.url.path)
            raise httpx2.ReadTimeout("nothing came")
        return sites["apt"].served(request)

    def run(name: str, *rows: OsRow) -> int:
        asked.clear()
        given = Settings(
            now=datetime.now(timezone.utc),
            mirrors={one.id: "http://m.site/debian" for one in rows},
            keyrings=[("", sites["apt"].keyring)],
        )
        targets: list[Target] = [(one, "amd64") for one in rows]
        found = survey(sites["apt"].matrix, targets, Lock(), fetcher(tmp_path / name, answer), given)
        assert set(found.targets) == set(found.partial) == {f"{one.id}-amd64" for one in rows}
        assert {error.exit_code for error in found.partial.values()} == {75}
        assert not found.unfit
        return len(asked)

    assert run("two", row, other) == run("one", row) > 0
