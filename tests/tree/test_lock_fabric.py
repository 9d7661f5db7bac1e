"""What is locked from NVIDIA's repository.

That is what its archives have not (fabric manager, NSCQ, IMEX, nvlsm), and a driver's own packages where a
site's row takes them from there.

A flat repository made with apt-ftparchive and signed stands in for NVIDIA's; the packages are empty.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.advice import Given
from driverforge_build.lock.file import load_lock
from driverforge_build.lock.pins import LockedPackage, Roles
from driverforge_build.matrix import jit_cells
from driverforge_build.matrix.load import load_matrix
from driverforge_build.render.bake import bake_document, target_name
from driverforge_build.render.context import driver_contexts
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
    fabric:
      - id: "535"
        packages: ["nvidia-fabricmanager-{branch}", "libnvidia-nscq-{branch}", "nvidia-imex-{branch}"]
        companions: [nvlsm, nvidia-modprobe]
    drivers:
      - id: "535"
        branch: "535"
        version: 535.309.01
        payload: runfile
        module_types: [open, proprietary]
        url: "https://us.download.nvidia.com/tesla/{version}/NVIDIA-Linux-{machine}-{version}.run"
"""
HEAD, _, REST = MATRIX.partition("    drivers:\n      - id")
TEXT = (HEAD + ROW + REST[REST.index("  - id: ubuntu24.04") :]).replace(
    "newest: 535.261.03", "newest: 535.309.01"
)

OWN = """\
    drivers:
      - id: "535"
        branch: "535"
        version: 535.309.01
        payload: packages
        module_types: [open]
        repositories: [cuda-debian12, bookworm]
        modules: [{id: open, packages: [nvidia-kernel-open-dkms], tree: "usr/src/nvidia-{version}"}]
        firmware: {package: firmware-nvidia-gsp, tree: "lib/firmware/nvidia/{version}"}
        userspace: [libcuda1, nvidia-modprobe]
        companions: [nvidia-persistenced]
"""
OWN_TEXT = TEXT[: TEXT.index("    fabric:\n")] + OWN + TEXT[TEXT.index("  - id: ubuntu24.04") :]


def own_packages(version: str) -> list[Deb]:
    """A driver's own packages as NVIDIA has them, in one version."""
    exact = f"{version}-1"
    return [
        Deb(name="libcuda1", version=exact, depends=f"libnvidia-ml1 (= {exact}), libc6"),
        Deb(name="libnvidia-ml1", version=exact, depends="libc6"),
        *(
            Deb(name=name, version=exact, depends="libc6")
            for name in ("nvidia-modprobe", "nvidia-persistenced", "firmware-nvidia-gsp")
        ),
        Deb(name="nvidia-kernel-open-dkms", version=exact, depends="dkms"),
    ]


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

    def matrix(self, trust: str = "", *, since: str = "535", sample: str = TEXT) -> Path:
        """The sample's matrix with NVIDIA's repository. `trust`: who signs it, in keys of its row,
        `since`: the first branch that takes something from there.
        """
        repository = f"      - {{id: cuda-debian12, urls: ['{ADDRESS}'], role: extra, optional: true"
        repository += f", {trust or f'keyring: {self.key.keyring}'}}}\n"
        text = sample.replace('fabric:\n      - id: "535"', f'fabric:\n      - id: "{since}"')
        return write_matrix(self.folder, text.replace("    kernels:\n", f"{repository}    kernels:\n", 1))

    def lock(self, *words: str) -> tuple[int, str]:
        given = ["--matrix", str(self.folder / "site.yaml"), "--lock", str(self.folder / "l.json")]
        given += ["--cache-dir", str(self.folder / "cache"), "--keyring", str(self.debian.key.keyring)]
        given += ["--mirror", f"debian12={self.debian.url}"]
        given += ["--mirror", f"nvidia={(self.folder / 'nvidia').as_uri()}"]
        status = cli.run(["lock", *given, *words])
        captured = self.capture.readouterr()
        return status, captured.out + captured.err

    @property
    def roles(self) -> Roles:
        (target,) = load_lock(self.folder / "l.json").targets.values()
        return target.drivers[VERSION]

    @property
    def pinned(self) -> dict[str, LockedPackage]:
        return {package.name: package for package in self.roles["fabric"]}

    def warnings(self) -> list[str]:
        """What `plan` says of the image that compiles on nodes."""
        words = ["--matrix", str(self.folder / "site.yaml"), "--lock", str(self.folder / "l.json")]
        cli.run(["plan", *words, "--select", "debian12-amd64-*-jit", "--json"])
        (cell,) = json.loads(self.capture.readouterr().out)["cells"]
        assert cell["verdict"] == "build"
        return [one for one in cell["warnings"] if "fabric manager" in one]


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
        # of the branch, and the distribution's own goes before a vendor's
        "nvidia-modprobe": "535.161.07-2",
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
    assert f"set `version: {OTHER}` for driver 535 of debian12" in told
    line = (site.folder / "site.yaml").read_text().partition('- id: "535"\n        branch')[0].count("\n") + 1
    assert f"site.yaml:{line}: driver 535 of debian12" in told
    # whoever has no NVSwitches has images without it
    assert "fabric" not in site.roles
    assert len(site.warnings()) == 1


def test_what_another_key_signed_is_not_taken_and_the_system_is_locked_without_it(
    site: Site, keys: tuple[SigningKey, SigningKey]
) -> None:
    publish_packages(site.folder / "nvidia", keys[0], [*parts(VERSION), nvlsm()])
    status, told = site.lock()
    assert status == 75
    assert "InRelease of cuda-debian12 is not signed by a key that is trusted here" in told
    assert "left out: what nodes with NVSwitches need beside 535.309.01" in told
    assert "; images without it serve all other nodes" in told
    assert list(site.roles) == ["toolchain", "tools"]
    assert len(site.warnings()) == 1


def test_an_index_that_was_changed_is_refused(site: Site) -> None:
    folder = publish_packages(site.folder / "nvidia", site.key, [*parts(VERSION), nvlsm()])
    (folder / "Packages.gz").write_bytes(b"0" * (folder / "Packages.gz").stat().st_size)
    status, told = site.lock()
    assert (status, "Packages.gz is not what the signed index says" in told) == (75, True)
    assert "fabric" not in site.roles
    # what was left out is told behind it
    document, _ = json.JSONDecoder().raw_decode(site.lock("--json")[1])
    (target,) = document["targets"].values()
    assert "cuda-debian12" not in target["read"]


@pytest.mark.parametrize("broken", ["changed", "gone", "another key"])
def test_what_the_lock_has_stays_where_the_repository_cannot_be_read(
    site: Site, broken: str, keys: tuple[SigningKey, SigningKey]
) -> None:
    folder = publish_packages(site.folder / "nvidia", site.key, [*parts(VERSION), nvlsm()])
    assert site.lock()[0] == 0
    before = (site.folder / "l.json").read_bytes()
    assert site.warnings() == []
    if broken == "another key":
        publish_packages(site.folder / "nvidia", keys[0], [*parts(VERSION), nvlsm()])
    elif broken == "gone":
        folder.rename(site.folder / "away")
    else:
        (folder / "InRelease").write_text((folder / "InRelease").read_text().replace("NVIDIA", "nvidia"))
    status, told = site.lock()
    assert status == 75, told
    assert "cuda-debian12" in told
    assert (site.folder / "l.json").read_bytes() == before


def test_a_mirror_of_nvidias_archives_alone_is_enough_for_nodes_without_nvswitches(site: Site) -> None:
    status, told = site.lock()
    assert status == 0, told
    assert "debian12-amd64: read without cuda-debian12; " in told
    assert "fabric" not in site.roles


def test_nvidia_is_not_asked_where_no_selected_driver_has_anything_from_there(site: Site) -> None:
    site.matrix(since="550")
    status, told = site.lock()
    assert (status, "cuda-debian12" in told) == (0, False)
    assert site.warnings() == []


def test_without_the_keys_the_message_says_where_they_are(site: Site) -> None:
    site.matrix("keyring: /nowhere/nvidia.gpg")
    publish_packages(site.folder / "nvidia", site.key, [*parts(VERSION), nvlsm()])
    status, told = site.lock()
    assert (status, "InRelease of cuda-debian12 is not signed" in told) == (75, True)


def test_the_key_that_nvidia_publishes_is_taken_where_its_fingerprint_is_the_known_one(site: Site) -> None:
    folder = publish_packages(site.folder / "nvidia", site.key, [*parts(VERSION), nvlsm()])
    shutil.copy(site.key.armored, folder / "nvidia.pub")
    site.matrix(f"key: nvidia.pub, key_fingerprint: {site.key.fingerprint}")
    status, told = site.lock()
    assert status == 0, told
    assert site.pinned["nvlsm"].suite == "cuda-debian12"


def test_another_key_in_its_place_is_not_taken(site: Site, keys: tuple[SigningKey, SigningKey]) -> None:
    """Not even beside the known one: gpgv would believe both."""
    folder = publish_packages(site.folder / "nvidia", keys[0], [*parts(VERSION), nvlsm()])
    site.matrix(f"key: nvidia.pub, key_fingerprint: {keys[1].fingerprint}")
    both = keys[1].armored.read_bytes() + keys[0].armored.read_bytes()
    for published in (keys[0].armored.read_bytes(), both, b"no key"):
        (folder / "nvidia.pub").write_bytes(published)
        status, told = site.lock()
        assert (status, "nvidia.pub is not the key that signs this repository" in told) == (75, True)
        assert "fabric" not in site.roles


def test_a_build_gets_the_packages_from_nvidia_or_its_mirror(site: Site) -> None:
    """BuildKit itself does: no base image is configured with the repository."""
    publish_packages(site.folder / "nvidia", site.key, [*parts(VERSION), nvlsm()])
    site.lock()
    lock = load_lock(site.folder / "l.json")
    cells = [cell for cell in jit_cells(load_matrix(site.folder / "site.yaml")) if cell.arch == "amd64"]
    (context,) = driver_contexts([cell for cell in cells if cell.os.id == "debian12"], lock, given=Given())
    dockerfile = context.entries["Dockerfile"].content.decode()
    for package in site.pinned.values():
        if package.suite == "cuda-debian12":
            fetched = f"ADD --checksum=sha256:{package.sha256} ${{CUDA_DEBIAN12_URL}}/{package.path} /\n"
            assert fetched in dockerfile
    assert f"ARG CUDA_DEBIAN12_URL={ADDRESS}\n" in dockerfile
    path = "compute/cuda/repos/debian12/x86_64"
    for mirrors, at in (
        ({}, None),
        ({"nvidia": "http://m/nv"}, f"http://m/nv/{path}"),
        ({"debian12/cuda-debian12": "http://m/cuda/"}, "http://m/cuda"),
    ):
        target = bake_document([context], mirrors=mirrors)["target"][target_name(context.image.id)]
        assert target["args"].get("CUDA_DEBIAN12_URL") == at


def test_a_drivers_own_packages_are_nvidias_in_its_version_where_its_row_says_so(site: Site) -> None:
    """Debian has a libcuda1, an nvidia-modprobe and a libnvidia-ml1 too, the last one newer."""
    site.matrix(sample=OWN_TEXT)
    debs = [one for version in (OTHER, VERSION, "535.400.01", "580.178.04") for one in own_packages(version)]
    publish_packages(site.folder / "nvidia", site.key, debs)
    status, told = site.lock()
    assert status == 0, told
    taken = {
        role: {package.name: (package.version, package.suite) for package in packages}
        for role, packages in site.roles.items()
    }
    nvidias = (f"{VERSION}-1", "cuda-debian12")
    assert taken["userspace"] == {
        "libcuda1": nvidias,
        "libnvidia-ml1": nvidias,
        "nvidia-modprobe": nvidias,
        # beside the driver: the newest of its branch
        "nvidia-persistenced": ("535.400.01-1", "cuda-debian12"),
    }
    assert taken["source"] == {"nvidia-kernel-open-dkms": nvidias}
    assert taken["firmware"] == {"firmware-nvidia-gsp": nvidias}
    assert {suite for role in ("tools", "toolchain") for _, suite in taken[role].values()} <= {
        "bookworm",
        "bookworm-security",
    }


@pytest.mark.parametrize("missing_one", ["libcuda1", "nvidia-modprobe", "nvidia-kernel-open-dkms"])
def test_one_of_its_own_packages_in_another_version_is_an_error_that_says_what_to_write(
    site: Site, missing_one: str
) -> None:
    site.matrix(sample=OWN_TEXT)
    mixed = [
        one
        for version in (OTHER, VERSION)
        for one in own_packages(version)
        if (one.name == missing_one) == (version == OTHER)
    ]
    publish_packages(site.folder / "nvidia", site.key, mixed)
    status, told = site.lock()
    assert status == 1
    assert f"the repositories do not have {missing_one} {VERSION}" in told
    assert f"{OTHER}-1 (cuda-debian12)" in told
    assert f"set `version: {OTHER}` for driver 535 of debian12" in told
    # another driver's pins would be written with --keep-going alone
    assert not (site.folder / "l.json").exists()


def test_a_driver_whose_packages_are_there_is_left_out_where_nvidias_repository_is_not(site: Site) -> None:
    """Debian's packages of another version are no substitute."""
    site.matrix(sample=OWN_TEXT)
    status, told = site.lock()
    assert status == 0, told
    assert f"left out: driver {VERSION}" in told
    assert "images without it serve all other nodes" not in told
    (target,) = load_lock(site.folder / "l.json").targets.values()
    assert target.drivers == {}


def test_a_build_gets_a_drivers_own_packages_from_nvidia(site: Site) -> None:
    site.matrix(sample=OWN_TEXT)
    publish_packages(site.folder / "nvidia", site.key, own_packages(VERSION))
    assert site.lock()[0] == 0
    lock = load_lock(site.folder / "l.json")
    (cell,) = (cell for cell in jit_cells(load_matrix(site.folder / "site.yaml")) if cell.os.id == "debian12")
    (context,) = driver_contexts([cell], lock, given=Given())
    dockerfile = context.entries["Dockerfile"].content.decode()
    for role in ("userspace", "source", "firmware"):
        for package in site.roles[role]:
            fetched = f"ADD --checksum=sha256:{package.sha256} ${{CUDA_DEBIAN12_URL}}/{package.path} /\n"
            assert fetched in dockerfile
