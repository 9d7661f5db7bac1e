"""Pinned packages got and installed by the program that ships, dockerfiles/rhel/manager, with a real dnf.

dnf stands as in UBI's, Rocky's and Amazon's base images, without its `download` command, which is a plugin's.
Its root is a folder in place of `/`.
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from driverforge_build import resources
from driverforge_core.errors import CommandFailed
from support.fakes.mockpath import MockPath
from support.process import require, run
from support.samples.rpmrepo import Rpm, RpmHome, build, index
from support.skipping import provided

KMOD = Rpm(name="kmod", version="28", release="9.el9", files={"/usr/sbin/depmod": "depmod"})
PLUGINS = Rpm(
    name="dnf-plugins-core", version="4.3.0", release="16.el9", files={"/usr/lib/plugin": "download"}
)
REPOSITORY = "[t]\nname=t\nbaseurl={url}\nenabled=1\ngpgcheck=0\n"


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    provided(lambda: require("dnf", "createrepo_c", "rpmbuild", "rpm2cpio", "cpio"))
    for package in (KMOD, PLUGINS):
        build(package, tmp_path / "repository/Packages")
    index(tmp_path / "repository")
    for name in ("repos.d", "log"):
        (tmp_path / name).mkdir()
    (tmp_path / "repos.d/t.repo").write_text(REPOSITORY.format(url=(tmp_path / "repository").as_uri()))
    (tmp_path / "dnf.conf").write_text("[main]\n")
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    shutil.copy(resources.templates() / "scripts/fetch-pinned", scripts)
    shutil.copy(resources.templates() / "rhel/manager", scripts)
    return tmp_path


def install(bench: Path, *packages: Rpm, repository: str = "t") -> None:
    home = RpmHome.make(bench / "home")
    tools = MockPath(bench / "bin")
    tools.add(
        "dnf",
        f"exec /usr/bin/dnf --config={bench}/dnf.conf --releasever=9 --installroot={bench}/root "
        f"--setopt=reposdir={bench}/repos.d --setopt=cachedir={bench}/cache --setopt=logdir={bench}/log "
        f'--setopt=persistdir={bench}/persist "$@"',
    )
    lines = []
    for package in packages:
        path = bench / "repository/Packages" / package.file_name
        digest, size = hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size
        version = f"{package.version}-{package.release}"
        lines.append(f"{digest} {size} {repository} Packages/{package.file_name} {package.name} {version}\n")
    (bench / "list").write_text("".join(lines))
    environment = {**tools.environ(home.environ), "DRIVERFORGE_STORE": str(bench / "store")}
    run("sh", bench / "scripts/fetch-pinned", "install", bench / "list", env=environment)


def test_the_first_packages_of_an_image_come_without_dnfs_plugins(bench: Path) -> None:
    install(bench, KMOD, PLUGINS)
    assert (bench / "root/usr/sbin/depmod").read_text() == "depmod"
    assert (bench / "root/usr/lib/plugin").read_text() == "download"


def test_a_package_that_changed_behind_its_index_is_refused(bench: Path) -> None:
    (bench / "repository/Packages" / KMOD.file_name).write_bytes(b"another")
    with pytest.raises(CommandFailed) as caught:
        install(bench, KMOD)
    assert "a pinned package could not be downloaded" in "".join(caught.value.details)


@pytest.mark.parametrize(("repository", "found"), [("amazonlinux", True), ("t", False)])
def test_of_amazons_repository_the_newest_release_is_asked_where_the_bases_own_has_a_package_not(
    bench: Path, repository: str, found: bool
) -> None:
    """The lock reads `latest`; an image of Amazon Linux asks for what there was when it was made."""
    for release in ("9", "latest"):
        (bench / release).mkdir()
    (bench / "latest/Packages").symlink_to(bench / "repository/Packages")
    for release in ("9", "latest"):
        index(bench / release)
    text = f"[{repository}]\nname=a\nbaseurl={bench.as_uri()}/$releasever\nenabled=1\ngpgcheck=0\n"
    (bench / "repos.d/t.repo").write_text(text)
    with nullcontext() if found else pytest.raises(CommandFailed):
        install(bench, KMOD, PLUGINS, repository=repository)
    assert (bench / "root/usr/sbin/depmod").exists() is found
