"""What an archive of NVIDIA's has not (fabric manager, NSCQ, IMEX, nvlsm), locked from NVIDIA's repository.

A flat repository made with apt-ftparchive and signed stands in for NVIDIA's; the packages are empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.app.build import mirror_lines
from driverforge_build.app.prepare import row_mirrors
from driverforge_build.lock.file import load_lock
from driverforge_build.lock.pins import LockedPackage
from driverforge_build.matrix.load import load_matrix
from support.process import missing
from support.samples.aptrepo import Archive, Deb, SigningKey, signing_key
from support.samples.nvidiasite import publish_common, publish_packages
from support.samples.sampledebian import MATRIX, publish, write_matrix

PROGRAMS = ("apt-ftparchive", "gpg", "gpgv", "dpkg-deb")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)

VERSION, OTHER = "535.309.01", "535.274.02"
ADDRESS = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64"
ROW = """\
    drivers:
      - id: "535"
        branch: "535"
        version: 535.309.01
        payload: runfile
        module_types: [open, proprietary]
        url: "https://us.download.nvidia.com/tesla/{version}/NVIDIA-Linux-{machine}-{version}.run"
        repositories: [cuda-debian12, bookworm]
        userspace: ["nvidia-fabricmanager-{branch}", "libnvidia-nscq-{branch}", "nvidia-imex-{branch}"]
        companions: [nvlsm, nvidia-modprobe]
"""
HEAD, _, REST = MATRIX.partition("    drivers:\n      - id")
TEXT = (HEAD + ROW + REST[REST.index("  - id: ubuntu24.04") :]).replace(
    "newest: 535.261.03", "newest: 535.309.01"
)


def parts(version: str) -> list[Deb]:
    """NVIDIA's packages of a driver below 580, with the names that they have there."""
    names = ("nvidia-fabricmanager-535", "libnvidia-nscq-535", "nvidia-imex-535")
    return [Deb(name=name, version=f"{version}-1", depends="libc6") for name in names]


@dataclass(slots=True)
class Site:
    folder: Path
    debian: Archive
    key: SigningKey
    capture: pytest.CaptureFixture[str]

    def matrix(self, *, keyring: str = "") -> Path:
        """The sample's matrix with NVIDIA's repository."""
        repository = f"      - {{id: cuda-debian12, urls: ['{ADDRESS}'], role: extra, optional: true"
        repository += f", keyring: {keyring or self.key.keyring}}}\n"
        return write_matrix(self.folder, TEXT.replace("    kernels:\n", f"{repository}    kernels:\n", 1))

    def lock(self, *words: str) -> tuple[int, str]:
        given = ["--matrix", str(self.folder / "site.yaml"), "--lock", str(self.folder / "l.json")]
        given += ["--cache-dir", str(self.folder / "cache"), "--keyring", str(self.debian.key.keyring)]
        given += ["--mirror", f"debian12={self.debian.url}"]
        given += ["--mirror", f"nvidia={(self.folder / 'nvidia').as_uri()}"]
        status = cli.run(["lock", *given, *words])
        captured = self.capture.readouterr()
        return status, captured.out + captured.err

    @property
    def pinned(self) -> dict[str, LockedPackage]:
        (target,) = load_lock(self.folder / "l.json").targets.values()
        return {package.name: package for package in target.drivers[VERSION]["userspace"]}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SigningKey, SigningKey]]:
    """Debian's, and NVIDIA's."""
    folder = tmp_path_factory.mktemp("keys")
    with signing_key(folder / "debian") as debian, signing_key(folder / "nvidia") as nvidia:
        yield debian, nvidia


@pytest.fixture
def site(tmp_path: Path, keys: tuple[SigningKey, SigningKey], capsys: pytest.CaptureFixture[str]) -> Site:
    debian = Archive(tmp_path / "debian", keys[0])
    extra = [Deb(name="nvidia-modprobe", version="535.161.07-2", depends="libc6")]
    publish(debian, Archive(tmp_path / "debian-security", keys[0]), extra=extra)
    publish_common(tmp_path / "nvidia", VERSION)
    made = Site(tmp_path, debian, keys[1], capsys)
    made.matrix()
    return made


def nvlsm() -> Deb:
    return Deb(name="nvlsm", version="2025.10.12-1", depends="libc6")


def test_the_parts_are_pinned_in_the_drivers_own_version(site: Site) -> None:
    theirs = [Deb(name="libc6", version="99-1"), Deb(name="nvidia-modprobe", version=f"{VERSION}-1")]
    debs = [*parts(OTHER), *parts(VERSION), *parts("535.400.01"), nvlsm(), *theirs]
    publish_packages(site.folder / "nvidia", site.key, debs)
    status, told = site.lock()
    assert status == 0, told
    assert {name: package.version for name, package in site.pinned.items()} == {
        "libnvidia-nscq-535": f"{VERSION}-1",
        "nvidia-fabricmanager-535": f"{VERSION}-1",
        "nvidia-imex-535": f"{VERSION}-1",
        "nvidia-modprobe": f"{VERSION}-1",
        "nvlsm": "2025.10.12-1",
    }
    manager = site.pinned["nvidia-fabricmanager-535"]
    assert (manager.suite, manager.path) == (
        "cuda-debian12",
        f"nvidia-fabricmanager-535_{VERSION}-1_amd64.deb",
    )
    # a vendor's newer package is none of the distribution's: its own libc6 is in the tools
    (target,) = load_lock(site.folder / "l.json").targets.values()
    tools = {package.name: package for package in target.drivers[VERSION]["tools"]}
    assert tools["libc6"].suite == "bookworm"
    repository = target.suite("cuda-debian12")
    assert repository is not None
    assert repository.signed_by == (site.key.fingerprint,)
    assert list(repository.indexes) == ["Packages.gz"]


def test_a_version_that_does_not_fit_the_driver_is_an_error_that_names_those_that_are_there(
    site: Site,
) -> None:
    publish_packages(site.folder / "nvidia", site.key, [*parts(OTHER), nvlsm()])
    status, told = site.lock()
    assert status == 1
    assert f"the repositories do not have nvidia-fabricmanager-535 {VERSION}" in told
    assert f"they have {OTHER}-1 (cuda-debian12)" in told
    assert not (site.folder / "l.json").exists()


def test_packages_that_another_key_signed_are_not_trusted(
    site: Site, keys: tuple[SigningKey, SigningKey]
) -> None:
    publish_packages(site.folder / "nvidia", keys[0], [*parts(VERSION), nvlsm()])
    status, told = site.lock()
    assert status == 69
    assert "InRelease of cuda-debian12 is not signed by a key that is trusted here" in told


def test_an_index_that_was_changed_is_refused(site: Site) -> None:
    folder = publish_packages(site.folder / "nvidia", site.key, [*parts(VERSION), nvlsm()])
    (folder / "Packages.gz").write_bytes(b"0" * (folder / "Packages.gz").stat().st_size)
    status, told = site.lock()
    assert (status, "Packages.gz is not what the signed index says" in told) == (75, True)


def test_without_the_keys_the_message_says_where_they_are(site: Site) -> None:
    site.matrix(keyring="/nowhere/nvidia.gpg")
    publish_packages(site.folder / "nvidia", site.key, [*parts(VERSION), nvlsm()])
    status, told = site.lock()
    assert (status, "InRelease of cuda-debian12 is not signed" in told) == (69, True)


def test_a_build_is_told_where_a_vendors_repository_is(site: Site) -> None:
    """No base image is configured with it."""
    matrix = load_matrix(site.folder / "site.yaml")
    found = row_mirrors(matrix.rows[:1], {})
    assert mirror_lines(found, "debian12", "amd64") == [f"{ADDRESS} cuda-debian12"]
    found = row_mirrors(matrix.rows[:1], {"nvidia": "http://m/nv"})
    path = "compute/cuda/repos/debian12/x86_64"
    assert mirror_lines(found, "debian12", "amd64") == [f"http://m/nv/{path} cuda-debian12"]
