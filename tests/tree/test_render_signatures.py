"""fetch-pinned on packages of a repository whose index nobody signs: they have to prove themselves who made
them. Packages, keys and rpm's answers are real; the package manager only copies.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_build import resources
from support.process import missing
from support.samples.aptrepo import SigningKey, signing_key
from support.samples.rpmrepo import Rpm, RpmHome, build, change, sign

pytestmark = pytest.mark.skipif(
    bool(missing("rpmkeys", "rpmbuild", "rpmsign", "gpg")), reason="rpm makes the packages here"
)

KMOD = Rpm(name="kmod", version="31", release="12.el10", files={"/usr/sbin/depmod": "depmod"})
MANAGER = """\
manager_has() { return 1; }
manager_get() { each copied "$1"; }
copied() { mkdir -p "$store/$1" && cp "$MIRROR/$4" "$store/$1/"; }
manager_install() { for file; do echo "${file##*/}" >>"$MIRROR/installed"; done; }
manager_unpack() { echo "${1##*/}" >>"$MIRROR/installed"; }
"""


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "vendor", algorithm="rsa2048") as made:
        yield made


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "stranger", algorithm="rsa2048") as made:
        yield made


@dataclass(frozen=True, slots=True)
class Bench:
    """A folder with a package, and the scripts; rpm's database knows the vendor's key."""

    folder: Path
    package: Path

    def run(self, proof: str = "signed", action: str = "install") -> subprocess.CompletedProcess[str]:
        """Get and install the package as it is now, with or without the word that it has to be signed."""
        data = self.package.read_bytes()
        line = f"{hashlib.sha256(data).hexdigest()} {len(data)} baseos {self.package.name} kmod 31 {proof}\n"
        (self.folder / "list").write_text(line)
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder / "home"),
            "DRIVERFORGE_STORE": str(self.folder / "store"),
            "MIRROR": str(self.folder),
        }
        words = [self.folder / "scripts/fetch-pinned", action, self.folder / "list"]
        words += [self.folder / "out"] if action == "extract" else []
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    @property
    def installed(self) -> bool:
        return (self.folder / "installed").exists()


@pytest.fixture
def bench(tmp_path: Path, key: SigningKey) -> Bench:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in ("fetch-pinned", "check-signatures"):
        shutil.copy(resources.templates() / "scripts" / name, scripts)
    (scripts / "manager").write_text(MANAGER)
    RpmHome.make(tmp_path / "home").trust(key)
    return Bench(tmp_path, build(KMOD, tmp_path))


def test_a_package_of_the_vendors_is_installed(bench: Bench, key: SigningKey) -> None:
    sign(bench.package, key)
    done = bench.run()
    assert done.returncode == 0, done.stderr
    assert bench.installed


@pytest.mark.parametrize("action", ["install", "extract"])
def test_a_package_of_a_strangers_is_refused(bench: Bench, stranger: SigningKey, action: str) -> None:
    sign(bench.package, stranger)
    done = bench.run(action=action)
    assert done.returncode == 1
    assert (
        "check-signatures: kmod-31-12.el10.noarch.rpm is not signed with a key of this image" in done.stderr
    )
    assert "NOKEY" in done.stderr, "rpm's own words are there"
    assert "packages are not signed by anybody whom this base image knows" in done.stderr
    assert not bench.installed


def test_a_package_without_signature_is_refused(bench: Bench) -> None:
    assert bench.run().returncode == 1
    assert not bench.installed


def test_a_package_that_was_changed_and_pinned_then_is_refused(bench: Bench, key: SigningKey) -> None:
    change(sign(bench.package, key))
    assert bench.run().returncode == 1
    assert not bench.installed


def test_what_is_in_the_store_already_has_to_be_signed_too(bench: Bench) -> None:
    """Another base image, with other keys, shares that store."""
    assert bench.run(proof="").returncode == 0
    (bench.folder / "installed").unlink()
    assert bench.run().returncode == 1
    assert not bench.installed


def test_a_signed_index_vouches_for_packages_without_signature(bench: Bench) -> None:
    assert bench.run(proof="").returncode == 0
    assert bench.installed
