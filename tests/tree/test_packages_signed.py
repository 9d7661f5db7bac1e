"""Who signed an RPM package: real packages and keys, and rpm's own answers.

What dnf and zypper hand on is in tests/engine/test_packages_managers.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from driverforge_core.errors import InputError
from driverforge_driver.packages import PackageAccess, rpm
from driverforge_driver.packages.rpm import KeyPlaces
from driverforge_host.adapters.files import RootedFiles
from driverforge_host.adapters.subprocesses import SystemCommands
from support.process import missing
from support.samples.aptrepo import SigningKey, signing_key
from support.samples.rpmrepo import Rpm, RpmHome, build, change, sign

pytestmark = pytest.mark.skipif(
    bool(missing("rpmkeys", "rpmbuild", "rpmsign", "rpm2cpio", "gpg")), reason="rpm makes the packages here"
)

DEVEL = Rpm(
    name="kernel-devel",
    version="5.14.0",
    release="427.13.1.el9_4",
    files={"/usr/src/kernels/5.14.0/Makefile": "all:"},
)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "vendor", algorithm="rsa2048") as made:
        yield made


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    with signing_key(tmp_path_factory.mktemp("key") / "stranger", algorithm="rsa2048") as made:
        yield made


@dataclass
class Image:
    """What an image has: rpm's database, a folder of keys, .repo files."""

    folder: Path
    home: RpmHome

    @property
    def places(self) -> KeyPlaces:
        return KeyPlaces(folder=str(self.folder / "rpm-gpg"), repositories=str(self.folder / "repos.d"))

    @property
    def scratch(self) -> Path:
        return self.folder / "scratch"

    def verify(self, package: Path) -> None:
        commands = SystemCommands({"PATH": "/usr/bin:/bin", **self.home.environ})
        access = PackageAccess(commands=commands, files=RootedFiles(), environ={})
        rpm.verify(access, [str(package)], places=self.places, scratch=str(self.scratch))

    def refuse(self, package: Path) -> InputError:
        with pytest.raises(InputError) as caught:
            self.verify(package)
        return caught.value


@pytest.fixture
def image(tmp_path: Path) -> Image:
    for name in ("rpm-gpg", "repos.d"):
        (tmp_path / name).mkdir()
    return Image(tmp_path, RpmHome.make(tmp_path / "home"))


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> Path:
    return sign(build(DEVEL, tmp_path_factory.mktemp("signed")), key)


def test_a_package_signed_with_a_key_of_rpms_database(image: Image, signed: Path, key: SigningKey) -> None:
    image.home.trust(key)
    image.verify(signed)
    assert not image.scratch.exists()


def test_a_package_signed_with_a_key_file_of_the_image(image: Image, signed: Path, key: SigningKey) -> None:
    """Most images hold their keys as files only; dnf imports them when it installs."""
    (image.folder / "rpm-gpg/RPM-GPG-KEY-vendor").write_bytes(key.armored.read_bytes())
    (image.folder / "rpm-gpg/README").write_text("no key")
    (image.folder / "rpm-gpg/old").mkdir()
    image.verify(signed)
    shutil.rmtree(image.folder / "rpm-gpg")
    shutil.rmtree(image.scratch)
    image.refuse(signed)  # the image's own database has not learnt the key


@pytest.mark.parametrize(
    "line",
    ["gpgkey=file://{key}", "gpgkey = http://mirror.example/KEY,\n    file:{key}", "  gpgkey=file:{key}"],
)
def test_a_package_signed_with_a_key_that_a_repository_names(
    image: Image, signed: Path, key: SigningKey, line: str
) -> None:
    text = f"[site]\nname=site\nbaseurl=http://mirror.example/\n{line.format(key=key.armored)}\nenabled=1\n"
    (image.folder / "repos.d/site.repo").write_text(text)
    image.verify(signed)


def test_a_key_that_no_repository_is_configured_with_does_not_count(
    image: Image, signed: Path, key: SigningKey
) -> None:
    (image.folder / "repos.d/site.repo.rpmsave").write_text(f"[site]\ngpgkey=file://{key.armored}\n")
    (image.folder / "repos.d/site.repo").write_text(f"[site]\n#gpgkey=file://{key.armored}\n")
    image.refuse(signed)


def test_an_unsigned_package_has_digests_only(image: Image, tmp_path: Path, key: SigningKey) -> None:
    image.home.trust(key)
    error = image.refuse(build(DEVEL, tmp_path / "repo"))
    assert error.brief == f"header package without a signature that can be verified: {DEVEL.file_name}"
    assert any("Header SHA256 digest: OK" in line for line in error.details)
    assert "--headers DIR" in error.resolution


def test_a_package_of_an_unknown_key_names_the_key_and_what_to_do(
    image: Image, tmp_path: Path, key: SigningKey, stranger: SigningKey
) -> None:
    image.home.trust(key)
    error = image.refuse(sign(build(DEVEL, tmp_path / "repo"), stranger))
    assert error.brief.startswith(
        f"header package signed with a key that this image does not know: {DEVEL.file_name}, key "
    )
    assert stranger.fingerprint.lower().endswith(error.brief.rpartition(" ")[2])
    assert image.places.folder in error.resolution
    assert "gpgkey=" in error.resolution


def test_a_package_that_was_changed_after_it_was_signed(
    image: Image, tmp_path: Path, signed: Path, key: SigningKey
) -> None:
    image.home.trust(key)
    changed = tmp_path / signed.name
    changed.write_bytes(signed.read_bytes())
    change(changed)
    error = image.refuse(changed)
    assert error.brief == f"header package changed after it was signed: {DEVEL.file_name}"
    assert any("Payload SHA256 digest: BAD" in line for line in error.details)


def test_a_file_that_is_no_package(image: Image, tmp_path: Path) -> None:
    (tmp_path / "x.rpm").write_text("no package")
    assert image.refuse(tmp_path / "x.rpm").brief.endswith("x.rpm")


def test_macros_that_leave_checks_out_change_nothing(
    image: Image, tmp_path: Path, signed: Path, key: SigningKey
) -> None:
    """0xf0000 leaves out all that covers the payload (rpmts.h): a signed header would be enough."""
    image.home.trust(key)
    with (image.home.folder / ".rpmmacros").open("a") as macros:
        macros.write("%_pkgverify_level none\n%_pkgverify_flags 0xf0000\n")
    changed = tmp_path / signed.name
    changed.write_bytes(signed.read_bytes())
    change(changed)
    assert image.refuse(changed).brief.startswith("header package changed after it was signed")
