"""SUSE Linux Enterprise Server 15 SP7 as far as Debian 12 has it.

Packages are made and signed as for Rocky; the indexes are signed too, as SUSE's and NVIDIA's are, each with
their own key. What python311, kmod, cpio, zstd, make and gcc hold is Debian's, whose interpreter is 3.11 too.
The kernel is Debian's 6.1. The kernel module package has mocks, compiled for it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from driverforge_build.discover.kernels import SMALLEST
from support.likes import headers, modules
from support.likes.likeness import STANDS_IN, Likeness, debians, fabric, likeness, thin, write
from support.machines import kernels
from support.machines.kernels import Kernel
from support.process import run
from support.samples.aptrepo import SigningKey, signing_key
from support.samples.rpmrepo import Rpm, build_all, index, sign, sign_index

VERSION = "6.4.0-150700.53.40"
RELEASE = f"{VERSION}-default"
DRIVER = "595.71.05"
REPOSITORIES = {
    "SLE_BCI": "public-dl.suse.com/SUSE/Products/SLE-BCI/15-SP7/x86_64/product",
    "sle-module-basesystem": "updates.suse.com/SUSE/Updates/SLE-Module-Basesystem/15-SP7/x86_64/update",
    "cuda-sles15": "developer.download.nvidia.com/compute/cuda/repos/sles15/x86_64",
}
"""The system's name of a repository, and its address without https://."""
_SUITE = "bookworm"
_BINUTILS = (
    *("binutils", "binutils-common", "binutils-x86-64-linux-gnu", "libbinutils", "libctf0", "libctf-nobfd0"),
    *("libgprofng0", "libjansson4"),
)
_GCC = ("gcc", "gcc-12", "cpp", "cpp-12", "libgcc-12-dev", "libcc1-0", "libisl23", "libmpc3", "libmpfr6")
_PYTHON = (
    *("python3.11", "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "media-types"),
    *("libnsl2", "libtirpc3", "libexpat1", "libsqlite3-0"),
)
_PROGRAMS = ("python3.11", "kmod", "cpio", "zstd", "make", "gcc-12", "binutils", "zypper", "rpm")
_KMP = "nvidia-open-driver-G07-signed-cuda-kmp-default"

_DOCKERFILE = """\
ARG DEBIAN
FROM ${DEBIAN}
RUN apt-get update && apt-get install --yes --no-install-recommends zypper rpm rpm2cpio ca-certificates \\
    && apt-get clean && rm -rf /var/lib/apt/lists/*
COPY etc/ /etc/
COPY --chmod=755 usr/ /usr/
COPY key.asc nvidia.asc installed/ /tmp/base/
RUN rpm --import /tmp/base/*.asc && rpm --install --force-debian /tmp/base/*.rpm && rm -rf /tmp/base
"""
_REPOSITORY = "[{id}]\nname={id}\nenabled=1\nautorefresh=0\nbaseurl=https://{place}/\n"
_BASE = {
    "Dockerfile": _DOCKERFILE,
    "etc/os-release": 'NAME="SLES"\nVERSION="15-SP7, a likeness on Debian"\nVERSION_ID="15.7"\nID="sles"\n'
    'ID_LIKE="suse"\nPRETTY_NAME="SUSE Linux Enterprise Server 15 SP7, a likeness on Debian"\n',
    # Debian's rpm has its database in the user's home
    "etc/rpm/macros.likeness": "%_dbpath /var/lib/rpm\n",
    # SUSE's program reads another folder than Debian's
    "usr/local/sbin/update-ca-certificates": "#!/bin/sh\n"
    "exec /usr/sbin/update-ca-certificates --localcertsdir /etc/pki/trust/anchors\n",
    **{
        f"etc/zypp/repos.d/{name}.repo": _REPOSITORY.format(id=name, place=place)
        for name, place in REPOSITORIES.items()
        if name != "cuda-sles15"  # a base image knows none of NVIDIA's
    },
}


def sles() -> Likeness:
    return likeness(
        "sles15.7",
        suite=_SUITE,
        kernel=kernels.newest("6.1"),
        programs=_PROGRAMS,
        anchors="/etc/pki/trust/anchors",
        make=_make,
    )


def _make(folder: Path, kernel: Kernel, key: SigningKey) -> None:
    hosts = folder / "hosts"
    write(folder / "base", _BASE)
    with (
        tempfile.TemporaryDirectory(prefix="df-likes-", dir="/var/tmp") as name,
        signing_key(folder / "nvidia-key", algorithm="rsa2048") as nvidia,
    ):
        work = Path(name)
        contents = {
            "SLE_BCI": [*_tools(work), *_headers(work, kernel)],
            "sle-module-basesystem": [
                thin("kernel-default", *_rebuilt(), zeros=SMALLEST),
                thin("infiniband-diags", "57.0", "150700.1.2"),
                thin("libOpenCL1", "2.2.11", "150500.1.1", requires=("glibc >= 2.38",)),
                _kmp(work, kernel),
            ],
            "cuda-sles15": _userspace(),
        }
        for repository, packages in contents.items():
            target = hosts / REPOSITORIES[repository]
            signer = nvidia if repository == "cuda-sles15" else key
            for package in build_all(packages, target / "x86_64"):
                sign(package, signer)
            index(target)
            sign_index(target, signer)
            shutil.copy(signer.armored, target / "repodata/repomd.xml.key")
        shutil.copy(nvidia.armored, folder / "base/nvidia.asc")
        with (folder / "keyring.gpg").open("ab") as keyring:
            keyring.write(nvidia.keyring.read_bytes())
    installed = folder / "base/installed"
    installed.mkdir()
    (glibc,) = (hosts / REPOSITORIES["SLE_BCI"]).glob("x86_64/glibc-[0-9]*.rpm")
    shutil.copy(glibc, installed)


def _rebuilt() -> tuple[str, str]:
    """Version and release of the kernel's packages, with the number of a rebuild."""
    version, _, release = VERSION.partition("-")
    return version, f"{release}.1"


def _real(work: Path, name: str, version: str, release: str, *names: str, **more: Any) -> Rpm:
    """A package with the files of Debian's."""
    tree = debians(work / name, *names, suite=_SUITE)
    return Rpm(name=name, version=version, release=release, arch="x86_64", tree=tree, **more)


def _tools(work: Path) -> list[Rpm]:
    glibc = ("glibc >= 2.38",)
    return [
        thin("glibc", "2.38", "150600.14.40.1", provides=("libc.so.6()(64bit)",)),
        _real(work, "python311", "3.11.14", "150600.3.38.1", *_PYTHON, requires=glibc),
        _real(work, "kmod", "29", "150600.13.3.1", "kmod", "libkmod2", requires=glibc),
        _real(work, "cpio", "2.13", "150400.3.6.1", "cpio", requires=glibc),
        _real(work, "zstd", "1.5.7", "150700.1.2", "zstd", requires=glibc),
        _real(work, "make", "4.2.1", "7.3.2", "make", requires=glibc),
        _real(work, "binutils", "2.45", "150100.7.57.1", *_BINUTILS, requires=glibc),
        _real(work, "gcc", "7", "3.9.1", *_GCC, requires=("binutils", *glibc)),
        thin("libelf1", "0.185", "150400.5.8.3", provides=("libelf.so.1()(64bit)",), requires=glibc),
        thin("libelf-devel", "0.185", "150400.5.8.3", requires=("libelf1 = 0.185",)),
        thin("dwarves", "1.22", "150600.1.1", requires=("libelf1",)),
    ]


def _guise(kernel: Kernel) -> headers.Guise:
    return headers.Guise(kernel=kernel, release=RELEASE, compiler="gcc (SUSE Linux) 7.5.0")


def _headers(work: Path, kernel: Kernel) -> list[Rpm]:
    headers.suse(_guise(kernel), work / "kernel-devel", work / "kernel-default-devel")
    version, release = _rebuilt()
    shared = Rpm(name="kernel-devel", version=version, release=release, tree=work / "kernel-devel")
    flavour = Rpm(
        name="kernel-default-devel",
        version=version,
        release=release,
        arch="x86_64",
        requires=(f"kernel-devel = {version}-{release}",),
        tree=work / "kernel-default-devel",
    )
    return [shared, flavour, thin("kernel-macros", version, release)]


def _kmp(work: Path, kernel: Kernel) -> Rpm:
    """The kernel module package: modules packed with zstd, and the firmware."""
    source, output = headers.suse(_guise(kernel), work / "build", work / "build")
    tree = work / "kmp"
    folder = tree / f"usr/lib/modules/{RELEASE}/updates"
    with modules.compiled(source, output, compiler=kernel.compiler, version=DRIVER) as made:
        modules.copy(made, folder)
    run("zstd", "--quiet", "--rm", *folder.iterdir())
    write(
        tree / f"usr/lib/firmware/nvidia/{DRIVER}",
        {f"{name}.bin": STANDS_IN for name in ("gsp_ga10x", "gsp_tu10x")},
    )
    return Rpm(
        name=_KMP,
        version=f"{DRIVER}_k{VERSION.replace('-', '_')}",
        release="150700.16.8.1",
        arch="x86_64",
        requires=("kernel-default",),
        tree=tree,
    )


def _userspace() -> list[Rpm]:
    """NVIDIA's packages, which have an epoch."""
    names = (
        *("nvidia-common-G07", "nvidia-compute-G07", "nvidia-compute-utils-G07", "nvidia-modprobe"),
        *("nvidia-persistenced", "libnvidia-cfg", "libnvidia-gpucomp", "libnvidia-ml"),
    )
    return [*(thin(name, DRIVER, "1", epoch="3") for name in names), *fabric(DRIVER)]
