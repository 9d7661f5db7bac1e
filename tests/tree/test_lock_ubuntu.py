"""`driverforge lock` on an archive laid out as Ubuntu's: pockets, ports, headers by dependency, modules."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import date, datetime, timezone
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.discover.settings import Settings
from driverforge_build.discover.survey import Survey, survey
from driverforge_build.lock.file import dump_lock, load_lock, parse_lock
from driverforge_build.lock.pins import Lock, LockedKernel, TargetLock
from driverforge_build.plan.rows import all_cells
from driverforge_build.verdict.decide import Judge
from driverforge_build.verdict.verdicts import State
from driverforge_build.verify.tree import kernel_packages
from driverforge_core.errors import TemporaryFailure, UsageError
from support.fakes.mirror import fetcher
from support.process import missing
from support.samples import ubuntuarchive
from support.samples.aptrepo import SigningKey, signing_key
from support.samples.ubuntuarchive import (
    AMD64,
    ARM64,
    AWS,
    BOUND,
    DRIVER,
    GENERIC,
    HWE,
    MATRIX,
    OLD,
    PAGES_64K,
    ubuntu_matrix,
)

PROGRAMS = ("apt-ftparchive", "gpg", "gpgv", "dpkg-deb")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "k") as made:
        yield made


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> Path:
    """The folder of both archives, `ubuntu` and `ubuntu-ports`."""
    folder = tmp_path_factory.mktemp("mirror")
    ubuntuarchive.publish(folder / "ubuntu", key, AMD64, "amd64")
    ubuntuarchive.publish(folder / "ubuntu-ports", key, ARM64, "arm64")
    return folder


def surveyed(mirror: Path, key: SigningKey, cache: Path, *, archs: tuple[str, ...] = ("amd64",)) -> Survey:
    matrix = ubuntu_matrix()
    (row,) = matrix.rows
    settings = Settings(
        now=datetime.now(timezone.utc),
        mirrors={row.id: (mirror / "ubuntu").as_uri()},
        keyrings=[("", key.keyring)],
    )
    targets = [(row, arch) for arch in row.archs if arch in archs]
    return survey(matrix, targets, Lock(), fetcher(cache), settings)


@pytest.fixture(scope="module")
def found(mirror: Path, key: SigningKey, tmp_path_factory: pytest.TempPathFactory) -> Survey:
    return surveyed(mirror, key, tmp_path_factory.mktemp("cache"), archs=("amd64", "arm64"))


@pytest.fixture(scope="module")
def amd64(found: Survey) -> TargetLock:
    return found.targets["ubuntu24.04-amd64"]


@pytest.fixture(scope="module")
def arm64(found: Survey) -> TargetLock:
    return found.targets["ubuntu24.04-arm64"]


def headers(kernel: LockedKernel) -> list[str]:
    return [package.name for package in kernel.headers]


def test_all_kernels_of_all_pockets(amd64: TargetLock, found: Survey) -> None:
    assert not found.problems
    assert list(amd64.kernels) == [OLD, GENERIC, BOUND, AWS, HWE]
    assert amd64.without_headers == ()
    assert [one.suite for one in amd64.repositories] == ["noble", "noble-updates", "noble-security"]


@pytest.mark.parametrize(
    ("release", "common"),
    [
        (OLD, "linux-headers-6.8.0-31"),
        (GENERIC, "linux-headers-6.8.0-136"),
        (AWS, "linux-aws-headers-6.8.0-1060"),
        (HWE, "linux-hwe-6.17-headers-6.17.0-40"),
    ],
)
def test_common_headers_are_what_the_headers_depend_on(amd64: TargetLock, release: str, common: str) -> None:
    kernel = amd64.kernels[release]
    assert sorted(headers(kernel)) == sorted([common, f"linux-headers-{release}"])
    assert kernel.compiler == "gcc-13"


def test_an_unsigned_image_is_an_image(amd64: TargetLock) -> None:
    assert amd64.kernels[AWS].image.name == f"linux-image-unsigned-{AWS}"
    assert amd64.kernels[GENERIC].image.name == f"linux-image-{GENERIC}"


def test_what_the_headers_programs_link_is_in_the_tool_chain(amd64: TargetLock) -> None:
    toolchain = {package.name for package in amd64.drivers[DRIVER]["toolchain"]}
    assert toolchain == {"make", "gcc-13", "libelf1t64", "libssl3t64", "zlib1g"}


def modules(target: TargetLock, release: str) -> dict[str, str]:
    vendor = target.kernels[release].vendor.get(DRIVER, ())
    return {package.name.replace(f"-{release}", ""): package.version for package in vendor}


def test_modules_objects_and_signatures_are_of_one_version_and_one_driver(amd64: TargetLock) -> None:
    """The newer ones of this kernel are made of 580.178.04."""
    assert modules(amd64, GENERIC) == {
        "linux-objects-nvidia-580-server-open": "6.8.0-136.136+1",
        "linux-objects-nvidia-580-server": "6.8.0-136.136+1",
        "linux-signatures-nvidia": "6.8.0-136.136+1",
    }


def test_of_a_kernel_with_open_modules_alone_those_are_pinned_and_the_others_left_out(
    amd64: TargetLock,
) -> None:
    assert sorted(modules(amd64, HWE)) == ["linux-objects-nvidia-580-server-open", "linux-signatures-nvidia"]
    matrix, lock = ubuntu_matrix(), Lock(targets={amd64.key: amd64})
    judge = Judge(matrix, lock, today=date(2026, 11, 22))
    (cell,) = [cell for cell in all_cells(matrix, lock) if cell.key.endswith(HWE)]
    told = judge.verdict(cell)
    assert (told.state, told.narrowed(cell).module_types) == (State.BUILD, ("open",))
    assert told.warnings[0].startswith("built without proprietary modules: Ubuntu 24.04 has no modules of")


def test_the_kernels_own_modules_are_pinned_beside_its_image(amd64: TargetLock) -> None:
    wanted = [f"linux-image-{GENERIC}", f"linux-modules-{GENERIC}", f"linux-modules-extra-{GENERIC}"]
    assert [package.name for package in kernel_packages(amd64.kernels[GENERIC])] == wanted
    assert [package.name for package in amd64.kernels[OLD].modules] == [f"linux-modules-{OLD}"]
    again = parse_lock(dump_lock(Lock(targets={amd64.key: amd64}))).targets[amd64.key]
    assert sorted(one.name for one in kernel_packages(again.kernels[GENERIC])) == wanted


@pytest.mark.parametrize("release", [BOUND, AWS], ids=["another driver", "no signatures"])
def test_modules_that_would_not_do_are_not_pinned(amd64: TargetLock, release: str) -> None:
    assert modules(amd64, release) == {}


def test_ports_of_arm64_with_modules_and_no_signatures(arm64: TargetLock) -> None:
    assert list(arm64.kernels) == [PAGES_64K]
    assert sorted(modules(arm64, PAGES_64K)) == [
        "linux-objects-nvidia-580-server",
        "linux-objects-nvidia-580-server-open",
    ]
    assert headers(arm64.kernels[PAGES_64K])[1] == "linux-nvidia-headers-6.8.0-1044"


def test_firmware_has_the_version_in_its_name(amd64: TargetLock) -> None:
    (firmware,) = amd64.drivers[DRIVER]["firmware"]
    assert firmware.name == f"nvidia-firmware-580-server-{DRIVER}"
    assert firmware.suite == "noble-updates"


def test_header_probes_have_a_package_to_read(mirror: Path, key: SigningKey, tmp_path: Path) -> None:
    probe = """\
probes:
  - {id: resize, kind: arguments, symbol: pci_resize_resource, header: include/linux/pci.h, arguments: 4,
     module_types: [open], drivers: [{branch: "580"}], reason: four arguments, evidence: [a log]}
"""
    matrix = ubuntu_matrix(MATRIX + probe)
    settings = Settings(
        now=datetime.now(timezone.utc),
        mirrors={"ubuntu24.04": (mirror / "ubuntu").as_uri()},
        keyrings=[("", key.keyring)],
    )
    found = survey(matrix, [(matrix.rows[0], "amd64")], Lock(), fetcher(tmp_path), settings)
    target = found.targets["ubuntu24.04-amd64"]
    facts = [fact for kernel in target.kernels.values() for fact in target.facts(kernel).values()]
    assert [fact.breaks for fact in facts] == [False] * 5


def test_a_pocket_in_another_ones_place_is_refused(mirror: Path, key: SigningKey, tmp_path: Path) -> None:
    """Both have the release's code name: -updates in the release pocket's place hides what only that has."""
    shutil.copytree(mirror / "ubuntu", tmp_path / "ubuntu")
    dists = tmp_path / "ubuntu/dists"
    shutil.copy(dists / "noble-updates/InRelease", dists / "noble/InRelease")
    with pytest.raises(UsageError, match="is not noble: it says Suite noble-updates, Codename noble"):
        surveyed(tmp_path, key, tmp_path / "cache")


def test_an_index_that_apt_would_not_take_either(mirror: Path, key: SigningKey, tmp_path: Path) -> None:
    shutil.copytree(mirror / "ubuntu", tmp_path / "ubuntu")
    for path in (tmp_path / "ubuntu/dists/noble-updates/restricted").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TemporaryFailure, match="is not what the signed index says"):
        surveyed(tmp_path, key, tmp_path / "cache")


DERIVED = """\
  - id: derived24
    like: ubuntu24.04
    name: A derivative
    codename: zebra
    base: derived:24
"""


def test_a_derivative_has_the_suites_of_its_own_code_name() -> None:
    row = ubuntu_matrix(MATRIX + DERIVED).rows[1]
    suites = ["zebra", "zebra-updates", "zebra-security"]
    assert [one.id for one in row.repositories] == suites
    assert list(row.kernels[0].repositories) == suites
    assert sorted(row.drivers[0].repositories) == sorted(suites)


def test_systems_without_an_address_are_left_out_unless_they_are_named(
    mirror: Path, key: SigningKey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.yaml").write_text(MATRIX + DERIVED)
    files = ("--matrix", str(tmp_path / "site.yaml"), "--lock", str(tmp_path / "lock.json"))
    address = f"ubuntu24.04={(mirror / 'ubuntu').as_uri()}"
    words = [
        *files,
        "--cache-dir",
        str(tmp_path / "cache"),
        "--keyring",
        str(key.keyring),
        "--mirror",
        address,
    ]
    assert cli.run(["lock", *words]) == 0
    assert sorted(load_lock(tmp_path / "lock.json").targets) == ["ubuntu24.04-amd64", "ubuntu24.04-arm64"]
    told = capsys.readouterr()
    assert (
        "left out, for nothing says where their repositories are: derived24-amd64, derived24-arm64"
        in told.err
    )
    assert "--mirror derived24=http://MIRROR/derived" in told.err
    assert cli.run(["lock", *words, "--keyring", f"ubuntu24={key.keyring}"]) == 64
    assert "--keyring names ubuntu24, and no selected cell" in capsys.readouterr().err
    assert cli.run(["lock", *words, "--keyring", "derived24=/nowhere.gpg"]) == 64
    assert "there is no file /nowhere.gpg" in capsys.readouterr().err
    named = ["--select", "derived24-*", "--select", "ubuntu24.04-*"]
    assert cli.run(["lock", *words, *named]) == 1
    assert "derived24-amd64: error: " in capsys.readouterr().err
    assert cli.run(["lock", *words, "--select", "derived24-*"]) == 69
