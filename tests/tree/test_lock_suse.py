"""`driverforge lock` on repositories laid out as SUSE's: rebuild numbers, headers without kernels, KMPs."""

from __future__ import annotations

import hashlib
import shutil
from datetime import datetime, timezone
from pathlib import Path

import pytest

from driverforge_build.discover.settings import Settings
from driverforge_build.discover.signature import Untrusted
from driverforge_build.discover.survey import Survey, survey
from driverforge_build.lock.file import dump_lock, parse_lock
from driverforge_build.lock.pins import Lock
from support.fakes.mirror import fetcher
from support.process import missing
from support.samples import suserepo
from support.samples.aptrepo import SigningKey
from support.samples.rpmrepo import Rpm, add_metadata, sign_index
from support.samples.suserepo import BASESYSTEM, BCI, DRIVER, MATRIX, NEW, OLD, suse_matrix

PROGRAMS = ("createrepo_c", "rpmbuild", "gpg", "gpgv")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)
TARGET = "sles15.7-amd64"
KMP = "nvidia-open-driver-G07-signed-cuda-kmp-default"


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> Path:
    folder = tmp_path_factory.mktemp("mirror")
    suserepo.publish(folder / "bci", BCI, key)
    suserepo.publish(folder / "basesystem", BASESYSTEM, key)
    return folder


WITHOUT = "JIT images of the other drivers are made without it"


def surveyed(mirror: Path, key: SigningKey, cache: Path, *, subscribed: bool) -> Survey:
    mirrors = {"sles15.7/SLE_BCI": (mirror / "bci").as_uri()}
    if subscribed:
        mirrors["sles15.7/sle-module-basesystem"] = (mirror / "basesystem").as_uri()
    settings = Settings(now=datetime.now(timezone.utc), mirrors=mirrors, keyrings=[("", key.keyring)])
    matrix = suse_matrix()
    return survey(matrix, [(matrix.rows[0], "amd64")], Lock(), fetcher(cache), settings)


def test_headers_are_enough_where_kernels_want_a_subscription(
    mirror: Path, key: SigningKey, tmp_path: Path
) -> None:
    found = surveyed(mirror, key, tmp_path, subscribed=False)
    target = found.targets[TARGET]
    assert list(target.kernels) == [f"{OLD}-default", f"{NEW}-default"]
    kernel = target.kernels[f"{NEW}-default"]
    assert [(one.name, one.version) for one in kernel.headers] == [
        ("kernel-default-devel", f"{NEW}.1"),
        ("kernel-devel", f"{NEW}.1"),
        ("kernel-macros", f"{NEW}.1"),
    ]
    assert kernel.image is None
    assert "595.91.07" in target.drivers
    assert not found.problems
    assert DRIVER not in target.drivers
    assert found.closed[TARGET].details == ("left out: driver 595-kmp", WITHOUT)
    lock = Lock(targets=found.targets)
    assert parse_lock(dump_lock(lock)) == lock


def test_probes_read_the_package_for_all_architectures(mirror: Path, key: SigningKey, tmp_path: Path) -> None:
    target = surveyed(mirror, key, tmp_path, subscribed=False).targets[TARGET]
    breaks = [fact.breaks for kernel in target.kernels.values() for fact in target.facts(kernel).values()]
    assert breaks == [False, True]


def test_a_kmp_serves_the_kernels_of_its_service_pack(mirror: Path, key: SigningKey, tmp_path: Path) -> None:
    found = surveyed(mirror, key, tmp_path, subscribed=True)
    assert not found.problems
    assert not found.closed
    target = found.targets[TARGET]
    # the kernel whose image is gone runs nowhere any more
    assert list(target.kernels) == [f"{NEW}-default"]
    (kmp,) = target.kernels[f"{NEW}-default"].vendor[DRIVER]
    assert (kmp.name, kmp.version) == (KMP, f"{DRIVER}_k6.4.0_150700.53.40-150700.16.8.1")
    assert [one.name for one in target.drivers[DRIVER]["firmware"]] == [KMP]
    (compute,) = target.drivers[DRIVER]["userspace"]
    assert (compute.name, compute.version) == ("nvidia-compute-G07", f"3:{DRIVER}-1")


def with_own_key(mirror: Path, key: SigningKey, folder: Path, sha256: str = "") -> Survey:
    """SLE_BCI, read by somebody who has no keyring, with the key that it publishes itself."""
    shutil.copytree(mirror / "bci", folder / "bci")
    armored = key.armored.read_text()
    (folder / "bci/repo.pub").write_text(armored.replace("BLOCK-----\n", "BLOCK-----\nVersion: GnuPG 1\n", 1))
    known = sha256 or hashlib.sha256(armored.encode()).hexdigest()
    row = f"- id: SLE_BCI\n        key: repo.pub\n        key_sha256: {known}\n"
    matrix = suse_matrix(MATRIX.replace("- id: SLE_BCI\n", row))
    settings = Settings(
        now=datetime.now(timezone.utc), mirrors={"sles15.7/SLE_BCI": (folder / "bci").as_uri()}
    )
    return survey(matrix, [(matrix.rows[0], "amd64")], Lock(), fetcher(folder / "cache"), settings)


def test_a_vendors_own_key_counts_where_its_sum_is_the_known_one(
    mirror: Path, key: SigningKey, tmp_path: Path
) -> None:
    (repository,) = with_own_key(mirror, key, tmp_path).targets[TARGET].repositories
    assert repository.signed_by == (key.fingerprint,)


def test_a_vendors_streams_do_not_decide_which_driver_an_image_has(
    mirror: Path, key: SigningKey, tmp_path: Path
) -> None:
    """NVIDIA's are its branches, and none is a default; the row's version says which one it is."""
    name, number = "nvidia-fabricmanager", "595.71.05"
    packages = [Rpm(name=name, version=one, release="1", arch="x86_64") for one in (number, "610.57.04")]
    suserepo.publish(tmp_path / "cuda", packages, key)
    artifact = f"{name}-0:{number}-1.x86_64"
    stream = "---\ndocument: modulemd\nversion: 2\ndata:\n  name: nvidia-driver\n  stream: 595-open\n"
    stream += f"  license: {{module: [MIT]}}\n  artifacts:\n    rpms:\n      - {artifact}\n"
    add_metadata(tmp_path / "cuda", "modules", stream)
    sign_index(tmp_path / "cuda", key)
    row = "      - {id: cuda, urls: ['https://cuda.invalid/x'], role: extra, keyring: /nowhere}\n"
    fabric = f"    fabric: [{{id: '580', packages: [{name}]}}]\n"
    text = MATRIX.replace("    kernels:\n", f"{row}{fabric}    kernels:\n", 1)
    mirrors = {"sles15.7/SLE_BCI": (mirror / "bci").as_uri(), "sles15.7/cuda": (tmp_path / "cuda").as_uri()}
    settings = Settings(now=datetime.now(timezone.utc), mirrors=mirrors, keyrings=[("", key.keyring)])
    matrix = suse_matrix(text)
    found = survey(matrix, [(matrix.rows[0], "amd64")], Lock(), fetcher(tmp_path / "cache"), settings)
    assert list(found.unfit) == [f"{TARGET} 595.91.07"]
    assert "they have 595.71.05-1 (cuda)" in found.unfit[f"{TARGET} 595.91.07"].details


def test_another_key_than_the_known_one_is_refused(mirror: Path, key: SigningKey, tmp_path: Path) -> None:
    with pytest.raises(Untrusted, match=r"repo\.pub is not the key that signs this repository"):
        with_own_key(mirror, key, tmp_path, sha256="0" * 64)
