"""SUSE Linux Enterprise Server 15 SP7 on a Debian base: real zypper and rpm, signed indexes.

The shipped matrix, templates and scripts, and the vendors' addresses. What stands in for the real system is
said in tests/support/likes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driverforge_core.image import ImageFacts, ModuleSet
from support.likes import sles
from support.likes.bench import ARCHIVE, LikenessBench, likeness_bench
from support.machines.engine import Engine
from support.process import require
from support.samples.aptrepo import SigningKey
from support.samples.rpmrepo import sign_index
from support.skipping import provided

JIT = f"sles15.7-amd64-{ARCHIVE}-jit"
PRECOMPILED = f"sles15.7-amd64-{sles.DRIVER}-{sles.RELEASE}"
# the address of a subscriber's repository is in no matrix
SUBSCRIBED = (
    "--mirror",
    f"sles15.7/sle-module-basesystem=https://{sles.REPOSITORIES['sle-module-basesystem']}",
)

pytestmark = pytest.mark.full(reason="every run builds the images of one likeness, Rocky's")


@pytest.fixture(scope="module")
def bench(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LikenessBench]:
    provided(
        lambda: require("createrepo_c", "rpmbuild", "rpmsign", "gpg", "gpgv", "openssl", "zstd", "gcc-12")
    )
    likeness = provided(sles.sles)
    with likeness_bench(likeness, engine, tmp_path_factory.mktemp("sles")) as made:
        yield made


@pytest.fixture(scope="module")
def built(bench: LikenessBench) -> Iterator[dict[str, dict[str, Any]]]:
    """The build report of both images, by cell."""
    with bench.images(JIT, PRECOMPILED, more=SUBSCRIBED) as report:
        yield report


def test_a_sles_like_precompiled_image_on_debian_holds_suses_modules_and_their_firmware(
    bench: LikenessBench, built: dict[str, dict[str, Any]]
) -> None:
    reference = built[PRECOMPILED]["reference"]
    facts = ImageFacts.from_json(bench.run(reference, "cat /opt/driverforge/image.json").stdout)
    assert [str(kernel) for kernel in facts.kernels] == [sles.RELEASE]
    folder = f"/opt/lib/modules/{sles.RELEASE}/open"
    described = ModuleSet.from_json(bench.run(reference, f"cat {folder}/module-set.json").stdout)
    assert described.compiler == "the distribution's own build"
    assert "nvidia.ko" in described.modules
    told = bench.run(reference, f"modinfo -F vermagic {folder}/nvidia.ko").stdout
    assert told.split()[0] == sles.RELEASE
    firmware = f"ls /opt/driverforge/firmware/nvidia/{sles.DRIVER}"
    assert bench.run(reference, firmware).stdout.split() == ["gsp_ga10x.bin", "gsp_tu10x.bin"]
    installed = bench.run(reference, "rpm --query --all").stdout
    assert f"nvidia-compute-G07-{sles.DRIVER}-1.x86_64" in installed
    assert f"nvidia-fabricmanager-{sles.DRIVER}-1.x86_64" in installed
    assert "kmp" not in installed, "modules are unpacked, never installed"


def test_a_sles_like_jit_image_on_debian_fetches_headers_with_zypper_and_compiles(
    bench: LikenessBench, built: dict[str, dict[str, Any]]
) -> None:
    script = f"""
        rpm --query kmod python311 gcc make cpio
        driverctl build --kernel {sles.RELEASE} --module-type open --output /out
        modinfo -F vermagic /out/opt/lib/modules/{sles.RELEASE}/open/nvidia.ko
        rpm --query kernel-devel || true
    """
    told = bench.run(built[JIT]["reference"], script).stdout
    assert "gcc-7-3.9.1.x86_64" in told, "installed from the pins, by zypper"
    assert f"\n{sles.RELEASE} SMP" in told
    assert "package kernel-devel is not installed" in told, "headers are unpacked, never installed"


@pytest.fixture
def forged(bench: LikenessBench, stranger: SigningKey, tmp_path: Path) -> Iterator[None]:
    """SUSE's host with the same packages, and an index that a stranger signed."""
    hosts = shutil.copytree(bench.likeness.hosts, tmp_path / "hosts")
    target = hosts / sles.REPOSITORIES["SLE_BCI"]
    sign_index(target, stranger)
    shutil.copy(stranger.armored, target / "repodata/repomd.xml.key")
    host = sles.REPOSITORIES["SLE_BCI"].partition("/")[0]
    bench.vendors.folders[host] = hosts / host
    yield
    bench.vendors.folders[host] = bench.likeness.hosts / host


@pytest.mark.usefixtures("forged")
def test_an_index_of_another_signer_is_refused_when_a_sles_like_image_on_debian_compiles(
    bench: LikenessBench, built: dict[str, dict[str, Any]]
) -> None:
    script = f"driverctl build --kernel {sles.RELEASE} --output /out"
    done = bench.run(built[JIT]["reference"], script, check=False)
    assert done.status != 0
    assert "header packages cannot be verified: zypper accepts no signature" in done.stderr


@pytest.mark.usefixtures("forged")
def test_an_index_of_another_signer_is_not_locked_for_a_sles_like_image_on_debian(
    bench: LikenessBench,
) -> None:
    told = bench.lock(JIT, check=False)
    assert "signature" in told
