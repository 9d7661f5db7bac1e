"""Rocky Linux 10 as far as Debian 13 has it.

Packages are made by rpmbuild, signed by rpmsign, indexed by createrepo_c; as with the real one, nobody signs
the index, but of NVIDIA's repository. What kmod, cpio, make, gcc, libelf and dnf's plugins hold is Debian's.
The kernel is Debian's 6.12, which like Rocky's was compiled by gcc 14. The interpreter is the base's, for
Debian's dnf needs it: its package says that it stands in.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from driverforge_build.discover.kernels import SMALLEST
from support.likes import headers
from support.likes.likeness import Likeness, debians, fabric, likeness, thin, write
from support.machines import kernels
from support.machines.kernels import Kernel
from support.samples.aptrepo import SigningKey
from support.samples.rpmrepo import Rpm, build_all, index, sign, sign_index

HOST = "dl.rockylinux.org"
LISTS = "mirrors.rockylinux.org"
NVIDIA = "developer.download.nvidia.com"
DRIVER = "580.178.04"
RELEASE = "6.12.0-211.7.1.el10_2.x86_64"
REPOSITORIES = ("BaseOS", "AppStream")
_SUITE = "trixie"
_BINUTILS = (
    *("binutils", "binutils-common", "binutils-x86-64-linux-gnu", "libbinutils", "libctf0", "libctf-nobfd0"),
    *("libgprofng0", "libsframe1", "libjansson4"),
)
_GCC = (
    *("gcc-14", "gcc-14-x86-64-linux-gnu", "cpp-14", "cpp-14-x86-64-linux-gnu", "libgcc-14-dev", "libcc1-0"),
    *("libisl23", "libmpc3", "libmpfr6"),
)
_PROGRAMS = ("kmod", "cpio", "make", "gcc-14", "binutils", "libelf1t64", "dnf-plugins-core", "dnf", "rpm")

_OS_RELEASE = """\
NAME="Rocky Linux"
VERSION="10.2 (Red Quartz), a likeness on Debian"
ID="rocky"
ID_LIKE="rhel centos fedora"
VERSION_ID="10.2"
PLATFORM_ID="platform:el10"
"""
_DOCKERFILE = """\
ARG DEBIAN
FROM ${DEBIAN}
RUN apt-get update && apt-get install --yes --no-install-recommends dnf rpm rpm2cpio && apt-get clean \\
    && rm -rf /var/lib/apt/lists/*
COPY etc/ /etc/
COPY key.asc /etc/pki/rpm-gpg/RPM-GPG-KEY-Rocky-10
COPY installed/ /tmp/installed/
RUN rpm --install /tmp/installed/*.rpm && rm -rf /tmp/installed
"""
# as the base image has them
_REPOSITORY = """\
[{id}]
name=Rocky Linux $releasever - {name}
mirrorlist=https://mirrors.rockylinux.org/mirrorlist?arch=$basearch&repo={name}-$releasever$rltype
#baseurl=http://dl.rockylinux.org/$contentdir/$releasever/{name}/$basearch/os/
gpgcheck=1
enabled=1
countme=1
metadata_expire=6h
gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-Rocky-10
"""
_BASE = {
    "Dockerfile": _DOCKERFILE,
    "etc/os-release": _OS_RELEASE,
    "etc/dnf/dnf.conf": "[main]\ngpgcheck=1\ninstallonly_limit=3\nclean_requirements_on_remove=True\n"
    "best=True\nskip_if_unavailable=False\n",
    "etc/dnf/vars/contentdir": "pub/rocky\n",
    "etc/dnf/vars/rltype": "\n",
    "etc/yum.repos.d/rocky.repo": "\n".join(
        _REPOSITORY.format(id=name.lower(), name=name) for name in REPOSITORIES
    ),
}


def rocky() -> Likeness:
    (kernel, *_) = (one for one in kernels.candidates("6.12") if one.suite == _SUITE)
    return likeness("rocky10", suite=_SUITE, kernel=kernels.headers(kernel), programs=_PROGRAMS, make=_make)


def repository(hosts: Path, name: str) -> Path:
    """The folder of a repository in the folder of the hosts."""
    return hosts / HOST / f"pub/rocky/10/{name}/x86_64/os"


def _make(folder: Path, kernel: Kernel, key: SigningKey) -> None:
    hosts = folder / "hosts"
    with tempfile.TemporaryDirectory(prefix="df-likes-", dir="/var/tmp") as name:
        for repository_name, packages in _packages(Path(name), kernel).items():
            target = repository(hosts, repository_name)
            for package in build_all(packages, target / "Packages"):
                sign(package, key)
            index(target)
            lists = hosts / LISTS / f"mirrorlist?arch=x86_64&repo={repository_name}-10"
            address = f"https://{HOST}/{target.relative_to(hosts / HOST)}/\n"
            write(lists.parent, {lists.name: address})
    cuda = hosts / NVIDIA / "compute/cuda/repos/rhel10/x86_64"
    build_all(fabric(DRIVER), cuda)
    index(cuda)
    sign_index(cuda, key)
    write(folder / "base", _BASE)
    installed = folder / "base/installed"
    installed.mkdir()
    for one in ("glibc", "python3", "rocky-release"):
        (package,) = repository(hosts, "BaseOS").glob(f"Packages/{one}-[0-9]*.rpm")
        shutil.copy(package, installed)


def _real(work: Path, name: str, version: str, release: str, *debians_names: str, **more: Any) -> Rpm:
    """A package with the files of Debian's."""
    tree = debians(work / name, *debians_names, suite=_SUITE)
    if name == "gcc":
        (tree / "usr/bin/gcc").symlink_to("gcc-14")
    return Rpm(name=name, version=version, release=release, arch="x86_64", tree=tree, **more)


def _packages(work: Path, kernel: Kernel) -> dict[str, list[Rpm]]:
    """Names, versions and places are those of 10.2; so is what needs what, as far as it is here."""
    glibc = ("glibc >= 2.39",)
    base = [
        thin("glibc", "2.39", "58.el10", provides=("libc.so.6()(64bit)",)),
        thin(
            "rocky-release",
            "10.2",
            "1.3.el10",
            provides=("system-release = 10.2-1.3.el10", "system-release(releasever) = 10"),
        ),
        thin("python3", "3.12.13", "1.el10", requires=glibc),
        _real(work, "kmod", "31", "12.el10", "kmod", "libkmod2", requires=glibc),
        _real(work, "cpio", "2.15", "3.el10", "cpio", requires=glibc),
        _real(work, "make", "4.4.1", "9.el10", "make", requires=glibc, epoch="1"),
        thin("infiniband-diags", "57.0", "2.el10"),
        thin("elfutils-libelf", "0.194", "1.el10", provides=("libelf.so.1()(64bit)",), requires=glibc),
        _real(work, "dnf-plugins-core", "4.7.0", "9.el10", "dnf-plugins-core", "python3-dateutil"),
        *_kernel_images(),
    ]
    tree = headers.red_hat(
        headers.Guise(kernel=kernel, release=RELEASE, compiler="gcc (GCC) 14.3.1 (Red Hat 14.3.1-2)"),
        work / "kernel-devel",
    )
    version, _, release = RELEASE.removesuffix(".x86_64").partition("-")
    application = [
        _real(work, "binutils", "2.41", "58.el10", *_BINUTILS, requires=glibc),
        _real(work, "gcc", "14.3.1", "2.el10", *_GCC, requires=("binutils >= 2.31", *glibc)),
        thin("elfutils-libelf-devel", "0.194", "1.el10", requires=("elfutils-libelf = 0.194-1.el10",)),
        thin("kernel-headers", version, release),
        Rpm(
            name="kernel-devel",
            version=version,
            release=release,
            arch="x86_64",
            provides=(f"kernel-devel-uname-r = {RELEASE}", "installonlypkg(kernel)"),
            requires=("libelf.so.1()(64bit)", "libc.so.6()(64bit)"),
            tree=tree.parents[3],
        ),
    ]
    return {"BaseOS": base, "AppStream": application}


def _kernel_images() -> list[Rpm]:
    version, _, release = RELEASE.removesuffix(".x86_64").partition("-")
    provided = (f"kernel-uname-r = {RELEASE}", "installonlypkg(kernel)")
    core = thin("kernel-core", version, release, provides=provided, zeros=SMALLEST)
    return [core, *(thin(name, version, release) for name in ("kernel-modules-core", "kernel-modules"))]
