"""Our closure against dnf's own resolver, on a local repository and an empty system."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from driverforge_build.discover.closure import closure
from driverforge_build.discover.offered import PackageIndex, Requirement
from driverforge_build.discover.rpm.entries import new_index
from driverforge_build.discover.rpm.repomd import read_repository
from support.fakes.mirror import fetcher
from support.process import missing, run
from support.samples import rockyrepo
from support.samples.rockyrepo import NEW
from support.samples.rpmrepo import Rpm, build_all, index

PROGRAMS = ("dnf", "createrepo_c", "modifyrepo_c", "rpmbuild")
pytestmark = pytest.mark.skipif(
    bool(missing(*PROGRAMS)), reason=f"not installed: {', '.join(missing(*PROGRAMS))}"
)


def shape(name: str, *requires: str, provides: Sequence[str] = (), version: str = "1") -> Rpm:
    return Rpm(
        name=name,
        version=version,
        release="1",
        arch="x86_64",
        requires=requires,
        provides=tuple(provides),
        files={f"/usr/bin/{name}": ""},
    )


SHAPES = (
    shape("newest", version="1.9"),
    shape("newest", version="1.10"),
    shape("newest", version="1.10~rc1"),
    shape("asks-older", "newest < 1.10"),
    shape("asks-file", "/usr/bin/newest"),
    shape("asks-version", "virtual = 2"),
    shape("gives-one", provides=("virtual = 1",)),
    shape("gives-two", provides=("virtual = 2",)),
    shape("either", "(nowhere or newest)"),
    shape("both", "(newest and gives-one)"),
    shape("conditional", "(gives-one if gives-two)"),
    shape("conditional-met", "conditional", "gives-two"),
    shape("otherwise", "(gives-one if nowhere else gives-two)"),
    shape("circle-a", "circle-b"),
    shape("circle-b", "circle-a"),
)


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mirror") / "rocky"
    rockyrepo.publish(folder, "x86_64", None)
    build_all(SHAPES, folder / "shapes")
    index(folder / "shapes")
    return folder


@pytest.fixture(scope="module")
def repositories(mirror: Path) -> dict[str, Path]:
    return {
        "baseos": mirror / "BaseOS/x86_64/os",
        "appstream": mirror / "AppStream/x86_64/os",
        "shapes": mirror / "shapes",
    }


@pytest.fixture(scope="module")
def catalogue(repositories: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> PackageIndex:
    found = new_index()
    downloads = fetcher(tmp_path_factory.mktemp("cache"))
    for name, folder in repositories.items():
        one = read_repository(downloads, name, folder.as_uri(), keyrings=(), must_be_signed=False)
        one.add_packages(found, "amd64", downloads)
    return found


def simulated(root: Path, repositories: dict[str, Path], roots: Sequence[str]) -> set[str]:
    """What dnf would install into an empty root: ' make    x86_64    1:4.3-8.el9   appstream   6.1 k'."""
    options = [f"--repofrompath={name},{folder.as_uri()}" for name, folder in repositories.items()]
    told = run(
        "dnf",
        f"--installroot={root}",
        "--setopt=reposdir=/dev/null",
        "--setopt=install_weak_deps=0",
        "--setopt=module_platform_id=platform:el9",
        "--releasever=9",
        "--forcearch=x86_64",
        "--assumeno",
        "--nogpgcheck",
        *options,
        "install",
        *roots,
        env={"LC_ALL": "C.UTF-8", "COLUMNS": "200"},
        check=False,
    )
    rows = re.findall(
        r"^ (\S+) +(?:x86_64|noarch) +(\S+) +(?:baseos|appstream|shapes) ", told.stdout, re.MULTILINE
    )
    assert rows, told.stdout + told.stderr
    return {f"{name}={version}" for name, version in rows}


@pytest.mark.parametrize(
    "roots",
    [
        ["python3.12", "kmod"],
        ["gcc", "make", "elfutils-libelf-devel"],
        ["gcc", "redhat-rpm-config"],
        ["newest"],
        ["asks-older"],
        ["asks-file"],
        ["asks-version"],
        ["either"],
        ["both"],
        ["conditional"],
        ["conditional-met"],
        ["otherwise"],
        ["circle-a"],
        ["kernel-devel"],
    ],
    ids="+".join,
)
def test_the_same_packages_as_dnf(
    catalogue: PackageIndex, repositories: dict[str, Path], tmp_path: Path, roots: list[str]
) -> None:
    ours = closure(catalogue, [(Requirement(name=root),) for root in roots])
    theirs = simulated(tmp_path / "root", repositories, roots)
    # dnf takes the whole glibc-all-langpacks, a base image has the minimal one
    named = {f"{package.name}={package.version}" for package in ours}
    assert {one.replace("minimal-langpack", "all-langpacks") for one in named} == {
        one.replace("minimal-langpack", "all-langpacks") for one in theirs
    }


def test_dnf_finds_the_same_kernels(repositories: dict[str, Path], tmp_path: Path) -> None:
    told = run(
        "dnf",
        f"--installroot={tmp_path}",
        "--setopt=reposdir=/dev/null",
        "--releasever=9",
        "--forcearch=x86_64",
        f"--repofrompath=appstream,{repositories['appstream'].as_uri()}",
        "repoquery",
        "--quiet",
        "--whatprovides",
        f"kernel-devel-uname-r = {NEW}.x86_64",
        check=False,
    ).stdout
    assert told.strip() == f"kernel-devel-0:{NEW}.x86_64"
