"""`driverforge lock` with Red Hat's finished modules: a package a kernel, in a subscription's repository."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path

import pytest

from driverforge_build import cli
from driverforge_build.discover.settings import Settings
from driverforge_build.discover.survey import Survey, survey
from driverforge_build.lock.pins import Lock, TargetLock
from driverforge_build.matrix.fields import Arch
from driverforge_core.errors import TemporaryFailure
from support.fakes.mirror import fetcher
from support.process import missing
from support.samples import rockyrepo
from support.samples.aptrepo import SigningKey
from support.samples.rockyrepo import KMOD_MATRIX, NEW, OLD, SIGNED, kmod, rocky_matrix
from support.samples.rpmrepo import add_metadata

PROGRAMS = ("createrepo_c", "modifyrepo_c", "rpmbuild", "gpg", "gpgv")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)
NAME = f"kmod-nvidia-open-{SIGNED}-5.14.0-611.5.1"
STREAM = """\
---
document: modulemd
version: 2
data:
  name: nvidia-driver
  stream: "595-open"
  version: 20260101000000
  context: c
  arch: x86_64
  summary: a driver
  description: a driver
  license: {module: [MIT]}
  artifacts:
    rpms:
      - KMOD
...
"""


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> Path:
    folder = tmp_path_factory.mktemp("mirror") / "rocky"
    for machine in ("x86_64", "aarch64"):
        rockyrepo.publish(folder, machine, key)
    return folder


def mirrors(mirror: Path, extensions: Path | None) -> Mapping[str, str]:
    own = {"rocky9/extensions": extensions.as_uri()} if extensions else {}
    return {"rocky9": mirror.as_uri(), **own}


def surveyed(
    mirror: Path,
    key: SigningKey,
    cache: Path,
    extensions: Path | None,
    *,
    arch: Arch = "amd64",
    earlier: Lock | None = None,
) -> Survey:
    matrix = rocky_matrix(KMOD_MATRIX)
    settings = Settings(
        now=datetime.now(timezone.utc), mirrors=mirrors(mirror, extensions), keyrings=[("", key.keyring)]
    )
    return survey(matrix, [(matrix.rows[0], arch)], earlier or Lock(), fetcher(cache), settings)


def taken(target: TargetLock) -> dict[str, list[tuple[str, str]]]:
    """Name and version of the finished modules of each kernel."""
    return {
        release: [(one.name, one.version) for packages in kernel.vendor.values() for one in packages]
        for release, kernel in target.kernels.items()
    }


def test_a_kernel_has_the_newest_modules_of_the_rows_driver_that_are_its_own(
    mirror: Path, key: SigningKey, tmp_path: Path
) -> None:
    offered = [
        kmod(NEW, "x86_64", release=2),
        kmod(NEW, "x86_64", release=10),
        kmod(NEW, "x86_64", driver="595.91.07", release=11),
        kmod("5.14.0-611.5.2.el9_7", "x86_64"),
        kmod(NEW, "aarch64", release=12),
    ]
    rockyrepo.publish_kmods(tmp_path / "extensions", offered)
    found = surveyed(mirror, key, tmp_path / "cache", tmp_path / "extensions")
    assert not found.problems
    assert not found.closed
    target = found.targets["rocky9-amd64"]
    assert taken(target) == {f"{OLD}.x86_64": [], f"{NEW}.x86_64": [(NAME, f"3:{SIGNED}-10.el9_7")]}
    (package,) = target.kernels[f"{NEW}.x86_64"].vendor[SIGNED]
    assert package.suite == "extensions"
    # the user space and the firmware are NVIDIA's archive's
    assert set(target.drivers[SIGNED]) == {"tools", "toolchain"}


def test_kernels_of_64_kib_pages_have_modules_of_their_own(
    mirror: Path, key: SigningKey, tmp_path: Path
) -> None:
    rockyrepo.publish_kmods(tmp_path / "extensions", [kmod(NEW, "aarch64"), kmod(NEW, "aarch64", "64k")])
    found = surveyed(mirror, key, tmp_path / "cache", tmp_path / "extensions", arch="arm64")
    wide = NAME.replace("kmod-", "kmod-64k-")
    assert taken(found.targets["rocky9-arm64"]) == {
        f"{OLD}.aarch64": [],
        f"{NEW}.aarch64": [(NAME, f"3:{SIGNED}-3.el9_7")],
        f"{NEW}.aarch64+64k": [(wide, f"3:{SIGNED}-3.el9_7")],
    }


def test_modules_that_say_they_are_another_kernels_are_left_alone(
    mirror: Path, key: SigningKey, tmp_path: Path
) -> None:
    """A rebuild of RHEL may have its number and another release: 611.5.1.el9_7 and 611.5.1.el9_8."""
    other = kmod(NEW, "x86_64", release=9, made_for=NEW.replace("el9_7", "el9_8"))
    rockyrepo.publish_kmods(tmp_path / "extensions", [other, kmod(NEW, "x86_64")])
    found = surveyed(mirror, key, tmp_path / "cache", tmp_path / "extensions")
    assert taken(found.targets["rocky9-amd64"])[f"{NEW}.x86_64"] == [(NAME, f"3:{SIGNED}-3.el9_7")]


def test_modules_of_a_stream_that_nobody_enabled_are_not_seen(
    mirror: Path, key: SigningKey, tmp_path: Path
) -> None:
    rockyrepo.publish_kmods(tmp_path / "extensions", [kmod(NEW, "x86_64"), kmod(OLD, "x86_64")])
    hidden = f"{NAME}-3:{SIGNED}-3.el9_7.x86_64"
    add_metadata(tmp_path / "extensions", "modules", STREAM.replace("KMOD", hidden))
    found = surveyed(mirror, key, tmp_path / "cache", tmp_path / "extensions")
    assert {release: len(names) for release, names in taken(found.targets["rocky9-amd64"]).items()} == {
        f"{OLD}.x86_64": 1,
        f"{NEW}.x86_64": 0,
    }


def test_without_the_subscriptions_repository_all_else_is_as_it_was(
    mirror: Path, key: SigningKey, tmp_path: Path
) -> None:
    found = surveyed(mirror, key, tmp_path / "cache", None)
    assert (found.problems, found.closed) == ({}, {})
    assert taken(found.targets["rocky9-amd64"]) == {f"{OLD}.x86_64": [], f"{NEW}.x86_64": []}


def test_a_mirror_of_the_whole_system_may_have_it_in_a_folder_of_its_name(
    mirror: Path, key: SigningKey, tmp_path: Path
) -> None:
    whole = Path(shutil.copytree(mirror, tmp_path / "rocky"))
    rockyrepo.publish_kmods(whole / "extensions", [kmod(NEW, "x86_64")])
    found = surveyed(whole, key, tmp_path / "cache", None)
    assert taken(found.targets["rocky9-amd64"])[f"{NEW}.x86_64"] == [(NAME, f"3:{SIGNED}-3.el9_7")]


Explain = Callable[[Path | None, str], str]


@pytest.fixture
def explained(mirror: Path, key: SigningKey, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Explain:
    """Lock with a repository of finished modules or without, and say what `explain` tells of a cell."""
    (tmp_path / "site.yaml").write_text(
        KMOD_MATRIX + f'        sha256: {{amd64: "{"0" * 64}", arm64: "{"0" * 64}"}}\n'
    )
    words = ["--matrix", str(tmp_path / "site.yaml"), "--lock", str(tmp_path / "lock.json")]
    words += ["--base", f"rocky9=rocky9@sha256:{'0' * 64}"]

    def explain(extensions: Path | None, cell: str) -> str:
        given = [f"--mirror={name}={uri}" for name, uri in mirrors(mirror, extensions).items()]
        given += ["--keyring", str(key.keyring), "--cache-dir", str(tmp_path / "cache")]
        assert cli.run(["lock", *words, *given, "--select", "rocky9-amd64-*"]) == 0
        capsys.readouterr()
        cli.run(["explain", cell, *words])
        return capsys.readouterr().out

    return explain


def test_a_plan_builds_the_kernels_that_have_modules_and_says_of_the_others_that_they_have_none(
    explained: Explain, tmp_path: Path
) -> None:
    place = tmp_path / "extensions"
    rockyrepo.publish_kmods(place, [kmod(NEW, "x86_64")])
    built = explained(place, f"rocky9-amd64-{SIGNED}-{NEW}.x86_64")
    assert f"Rocky Linux 9 ships the modules: {NAME} 3:{SIGNED}-3.el9_7" in built
    assert "finished, from the distribution's packages" in built
    assert "its build downloads from extensions" in built
    assert f"has no modules of {SIGNED} for this kernel (yet)" in explained(
        place, f"rocky9-amd64-{SIGNED}-{OLD}.x86_64"
    )
    # the row that compiles is not asked whether anybody ships modules
    assert "ships the modules" not in explained(place, f"rocky9-amd64-580.178.04-{OLD}.x86_64")


def test_what_was_locked_of_a_subscription_is_not_lost_without_it(
    mirror: Path, key: SigningKey, tmp_path: Path
) -> None:
    rockyrepo.publish_kmods(tmp_path / "extensions", [kmod(NEW, "x86_64")])
    before = surveyed(mirror, key, tmp_path / "cache", tmp_path / "extensions")
    lock = Lock(targets=before.targets)
    with pytest.raises(TemporaryFailure) as told:
        surveyed(mirror, key, tmp_path / "cache", None, earlier=lock)
    assert told.value.details == (
        f"rocky9-amd64: 0 kernels have modules of {SIGNED}, in the lock 1 of them do",
    )
    assert "--accept-shrink" in told.value.resolution


def test_modules_that_nobody_looked_for_are_not_said_to_be_missing(explained: Explain) -> None:
    told = explained(None, f"rocky9-amd64-{SIGNED}-{NEW}.x86_64")
    assert told.splitlines()[0].endswith(": unknown")
    assert "a subscription is needed for extensions, where this driver's modules are" in told
    assert "with --mirror rocky9/extensions=ADDRESS" in told
    assert "(yet)" not in told
