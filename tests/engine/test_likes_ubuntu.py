"""Ubuntu 24.04 on a Debian base: real apt and dpkg, an archive by apt-ftparchive, modules as Canonical's.

The shipped matrix, templates and scripts, and the vendor's addresses. What stands in for the real system is
said in tests/support/likes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driverforge_core.image import ImageFacts, ModuleSet
from support.likes import ubuntu
from support.likes.bench import ARCHIVE, LikenessBench, likeness_bench
from support.machines.engine import Engine
from support.process import require
from support.samples.aptrepo import SigningKey, signing_key
from support.skipping import provided

JIT = f"ubuntu24.04-amd64-{ARCHIVE}-jit"
PRECOMPILED = f"ubuntu24.04-amd64-{ubuntu.DRIVER}-{ubuntu.RELEASE}"
HOST = "archive.ubuntu.com"

pytestmark = pytest.mark.full(reason="every run builds the images of one likeness, Rocky's")


@pytest.fixture(scope="module")
def bench(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LikenessBench]:
    provided(lambda: require("apt-ftparchive", "dpkg-deb", "gpg", "gpgv", "openssl", "gcc-12"))
    likeness = provided(ubuntu.ubuntu)
    with likeness_bench(likeness, engine, tmp_path_factory.mktemp("ubuntu")) as made:
        yield made


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "stranger") as made:
        yield made


@pytest.fixture(scope="module")
def built(bench: LikenessBench) -> Iterator[dict[str, dict[str, Any]]]:
    """The build report of both images, by cell."""
    with bench.images(JIT, PRECOMPILED) as report:
        yield report


def test_an_ubuntu_like_precompiled_image_on_debian_holds_canonicals_modules(
    bench: LikenessBench, built: dict[str, dict[str, Any]]
) -> None:
    """The open ones as they were published, the proprietary ones linked by the package's own script."""
    reference = built[PRECOMPILED]["reference"]
    facts = ImageFacts.from_json(bench.run(reference, "cat /opt/driverforge/image.json").stdout)
    assert [str(kernel) for kernel in facts.kernels] == [ubuntu.RELEASE]
    for kind, extra in (("open", ["nvidia-modeset.ko", "nvidia-peermem.ko"]), ("proprietary", [])):
        folder = f"/opt/lib/modules/{ubuntu.RELEASE}/{kind}"
        described = ModuleSet.from_json(bench.run(reference, f"cat {folder}/module-set.json").stdout)
        assert sorted(described.modules) == sorted(["nvidia.ko", "nvidia-uvm.ko", *extra])
        told = bench.run(reference, f"modinfo -F vermagic {folder}/nvidia.ko").stdout
        assert told.split()[0] == ubuntu.RELEASE
    assert "stands in" in bench.run(reference, "sh /usr/bin/nvidia-smi").stdout
    firmware = f"ls /opt/driverforge/firmware/nvidia/{ubuntu.DRIVER}"
    assert bench.run(reference, firmware).stdout.split() == ["gsp_ga10x.bin", "gsp_tu10x.bin"]
    installed = bench.run(reference, "dpkg-query --show").stdout
    assert "linux-objects" not in installed, "modules are unpacked, never installed"


def test_an_ubuntu_like_jit_image_on_debian_fetches_headers_with_apt_and_compiles(
    bench: LikenessBench, built: dict[str, dict[str, Any]]
) -> None:
    script = f"""
        dpkg-query --show kmod make gcc-13
        driverctl build --kernel {ubuntu.RELEASE} --module-type open --output /out
        modinfo -F vermagic /out/opt/lib/modules/{ubuntu.RELEASE}/open/nvidia.ko
        dpkg-query --show 'linux-headers-*' || true
    """
    done = bench.run(built[JIT]["reference"], script)
    assert "gcc-13\t" in done.stdout, "installed from the pins, by apt"
    assert f"\n{ubuntu.RELEASE} SMP" in done.stdout
    assert "linux-headers" not in done.stdout, "headers are unpacked, never installed"


@pytest.fixture
def forged(bench: LikenessBench, stranger: SigningKey, tmp_path: Path) -> Iterator[None]:
    """The archive with the same packages, and a pocket that a stranger signed."""
    host = shutil.copytree(bench.likeness.hosts / HOST, tmp_path / HOST)
    release = host / "ubuntu/dists/noble-updates/InRelease"
    text = release.read_text().partition("\n\n")[2].partition("-----BEGIN PGP SIGNATURE")[0]
    release.write_text(stranger.clearsign(text))
    bench.vendors.folders[HOST] = host
    yield
    bench.vendors.folders[HOST] = bench.likeness.hosts / HOST


@pytest.mark.usefixtures("forged")
def test_a_pocket_of_another_signer_is_refused_when_an_ubuntu_like_image_on_debian_compiles(
    bench: LikenessBench, built: dict[str, dict[str, Any]]
) -> None:
    script = f"driverctl build --kernel {ubuntu.RELEASE} --output /out"
    done = bench.run(built[JIT]["reference"], script, check=False)
    assert done.status != 0
    assert "header packages cannot be verified: apt-get accepts no signature" in done.stderr


@pytest.mark.usefixtures("forged")
def test_a_pocket_of_another_signer_is_not_locked_for_an_ubuntu_like_image_on_debian(
    bench: LikenessBench,
) -> None:
    told = bench.lock(JIT, check=False)
    assert "signature" in told
