"""Rocky Linux 10 on a Debian base: real dnf and rpm, packages signed by rpmsign, an index that nobody signs.

The shipped matrix, templates and scripts, and the vendor's addresses. What stands in for the real system is
said in tests/support/likes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driverforge_core.image import ImageFacts, ModuleSet
from support.likes import likeness, rocky
from support.likes.bench import ARCHIVE, LikenessBench, likeness_bench
from support.machines.dockerregistry import registry as serve
from support.machines.engine import Engine
from support.process import require
from support.samples.aptrepo import SigningKey
from support.samples.driverimage import push_stand_in
from support.samples.rpmrepo import index, sign
from support.skipping import provided

TARGET = f"rocky10-amd64-{ARCHIVE}"
JIT, PRECOMPILED = f"{TARGET}-jit", f"{TARGET}-{rocky.RELEASE}"
HEADERS = f"kernel-devel-{rocky.RELEASE}.rpm"


@pytest.fixture(scope="module")
def bench(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LikenessBench]:
    provided(lambda: require("createrepo_c", "rpmbuild", "rpmsign", "gpg", "gpgv", "openssl"))
    system = provided(rocky.rocky)
    with likeness_bench(system, engine, tmp_path_factory.mktemp("rocky")) as made:
        yield made


@pytest.fixture(scope="module")
def built(bench: LikenessBench) -> Iterator[dict[str, dict[str, Any]]]:
    """The build report of both images, by cell."""
    with bench.images(JIT, PRECOMPILED) as report:
        yield report


def test_a_rocky_like_precompiled_image_on_debian_holds_modules_of_its_kernel(
    bench: LikenessBench, built: dict[str, dict[str, Any]]
) -> None:
    reference = built[PRECOMPILED]["reference"]
    facts = ImageFacts.from_json(bench.run(reference, "cat /opt/driverforge/image.json").stdout)
    assert [str(kernel) for kernel in facts.kernels] == [rocky.RELEASE]
    for kind in ("open", "proprietary"):
        folder = f"/opt/lib/modules/{rocky.RELEASE}/{kind}"
        described = ModuleSet.from_json(bench.run(reference, f"cat {folder}/module-set.json").stdout)
        assert sorted(described.modules) == ["nvidia-modeset.ko", "nvidia-uvm.ko", "nvidia.ko"]
        told = bench.run(reference, f"modinfo -F vermagic {folder}/nvidia.ko").stdout
        assert told.split()[0] == rocky.RELEASE


def test_a_rocky_like_jit_image_on_debian_fetches_headers_with_dnf_and_compiles(
    bench: LikenessBench, built: dict[str, dict[str, Any]]
) -> None:
    script = f"""
        rpm --query kmod dnf-plugins-core gcc make cpio nvidia-fabricmanager nvlsm
        driverctl build --kernel {rocky.RELEASE} --module-type open --output /out
        modinfo -F vermagic /out/opt/lib/modules/{rocky.RELEASE}/open/nvidia.ko
        rpm --query kernel-devel || true
    """
    told = bench.run(built[JIT]["reference"], script).stdout
    assert "gcc-14.3.1-2.el10.x86_64" in told, "installed from the pins, by dnf"
    assert f"nvidia-fabricmanager-{ARCHIVE}-1.x86_64" in told, "which BuildKit got from NVIDIA"
    assert f"\n{rocky.RELEASE} SMP" in told
    assert "package kernel-devel is not installed" in told, "headers are unpacked, never installed"


UPON = """\
extends: builtin
keep: {systems: [rocky10], branches: ["580"]}
systems:
  - {id: rocky10, drivers: [{id: "580", payload: image, image: "IMAGE"}]}
"""


def test_a_rocky_like_jit_image_on_debian_is_built_upon_a_stand_in_of_nvidias_image(
    bench: LikenessBench, built: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    assert built
    with provided(lambda: serve(tmp_path / "registry")) as registry:
        name, base = f"{registry}/driver:{ARCHIVE}-rocky10", bench.builder.base
        engine, folder = bench.builder.engine, tmp_path / "stand-in"
        digest = push_stand_in(engine, base, folder, name, holds=ARCHIVE, says=ARCHIVE)
        (tmp_path / "site.yaml").write_text(UPON.replace("IMAGE", f"{registry}/driver@{digest}"))
        upon = replace(bench, builder=replace(bench.builder, matrix=tmp_path / "site.yaml"))
        reference = upon.build(JIT)[JIT]["reference"]
    assert "a fixture" in bench.run(reference, "nvidia-smi; ls -l /sbin/ldconfig.real").stdout
    script = (
        f"driverctl build --kernel {rocky.RELEASE} --module-type open --output /out; find /out -name '*.ko'"
    )
    assert f"/out/opt/lib/modules/{rocky.RELEASE}/open/nvidia.ko" in bench.run(reference, script).stdout
    bench.builder.forget(reference)


def test_rpms_database_and_package_configuration_are_the_bases_but_for_what_was_pinned(
    bench: LikenessBench, built: dict[str, dict[str, Any]]
) -> None:
    look = (
        "cd / && find etc/yum.repos.d etc/dnf/dnf.conf etc/dnf/vars etc/pki -type f | sort | xargs sha256sum"
    )
    assert bench.run(built[JIT]["reference"], look).stdout == bench.run(bench.builder.base, look).stdout
    names = "rpm --query --all --queryformat '%{NAME}\\n' | sort"
    installed = set(bench.run(built[PRECOMPILED]["reference"], names).stdout.split())
    added = installed - set(bench.run(bench.builder.base, names).stdout.split())
    fabric = {package.name for package in likeness.fabric(ARCHIVE)} | {"infiniband-diags"}
    # and no key, whether dnf had to download something or not
    assert added == {"kmod", "dnf-plugins-core", *fabric}


def resigned(bench: LikenessBench, folder: Path, pattern: str, key: SigningKey) -> None:
    """Serve repositories whose packages of one kind have another signature, and an index that agrees."""
    hosts = shutil.copytree(bench.likeness.hosts, folder)
    for name in rocky.REPOSITORIES:
        target = rocky.repository(hosts, name)
        found = list(target.glob(f"Packages/{pattern}"))
        for package in found:
            sign(package, key)
        if found:
            index(target)
    bench.vendors.folders[rocky.HOST] = hosts / rocky.HOST


@pytest.fixture
def vendor_again(bench: LikenessBench) -> Iterator[None]:
    """After a test the vendor's host has again what it had."""
    lock = bench.builder.lock.read_text()
    yield
    bench.vendors.folders[rocky.HOST] = bench.likeness.hosts / rocky.HOST
    bench.builder.lock.write_text(lock)


@pytest.mark.usefixtures("vendor_again")
def test_headers_of_another_signer_are_refused_when_a_rocky_like_image_on_debian_compiles(
    bench: LikenessBench, built: dict[str, dict[str, Any]], stranger: SigningKey, tmp_path: Path
) -> None:
    resigned(bench, tmp_path / "hosts", HEADERS, stranger)
    script = f"driverctl build --kernel {rocky.RELEASE} --output /out"
    done = bench.run(built[JIT]["reference"], script, check=False)
    assert done.status != 0
    assert "header package signed with a key that this image does not know" in done.stderr


@pytest.mark.usefixtures("vendor_again")
def test_a_package_of_another_signer_is_refused_when_a_rocky_like_image_on_debian_is_built(
    bench: LikenessBench, built: dict[str, dict[str, Any]], stranger: SigningKey, tmp_path: Path
) -> None:
    """Nobody signs the index, so the lock takes what it says, and so does `dnf download`."""
    resigned(bench, tmp_path / "hosts", "make-*.rpm", stranger)
    bench.lock(JIT)
    cell = bench.build(JIT, check=False)[JIT]
    assert cell["result"] == "failed"
    assert (
        "make-4.4.1-9.el10.x86_64.rpm is not signed with a key of this image" in Path(cell["log"]).read_text()
    )
