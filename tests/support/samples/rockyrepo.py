"""Repositories laid out as Rocky Linux 9's, made with rpmbuild and createrepo_c.

Names, versions, what packages provide and need, and what lies in BaseOS and what in AppStream are those of
the real ones in 2026; the packages hold next to nothing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from driverforge_build.discover.kernels import SMALLEST
from driverforge_build.matrix.load import Matrix, parse_matrix
from support.samples.aptrepo import SigningKey
from support.samples.rpmrepo import Rpm, add_metadata, build_all, index, sign_index

OLD, NEW, BARE = "5.14.0-503.14.1.el9_5", "5.14.0-611.5.1.el9_7", "5.14.0-570.12.1.el9_6"
"""Versions of kernels, without machine. `BARE` has no kernel-devel any more."""
THREE = "int __must_check pci_resize_resource(struct pci_dev *dev, int i, int size);"
FOUR = "int pci_resize_resource(struct pci_dev *dev, int i, int size, int exclude_bars);"

MATRIX = """\
branches:
  - {id: "580", designation: LTSB, newest: 580.178.04, archs: [amd64, arm64], \
module_types: [open, proprietary],
     payloads: [packages, runfile], gpus: [ampere], systems: [{id: rocky}], cuda: "13"}
gpus:
  - {id: ampere, module_types: [open], devices: ["2080-20ff"]}
probes:
  - id: resize
    kind: arguments
    symbol: pci_resize_resource
    header: include/linux/pci.h
    arguments: 4
    module_types: [open]
    drivers: [{branch: "580"}]
    reason: pci_resize_resource() has four arguments
    evidence: ["a compiler's log"]
systems:
  - id: rocky9
    name: Rocky Linux 9
    family: rhel
    package_manager: dnf
    archs: [amd64, arm64]
    base: rockylinux/rockylinux:9.8-ubi
    releasever: "9"
    python: {package: python3.12, executable: /usr/bin/python3.12, version: "3.12"}
    repositories:
      - id: baseos
        urls: ["https://dl.rocky.invalid/pub/rocky/{releasever}/BaseOS/{machine}/os/"]
        signed: packages
      - id: appstream
        urls: ["https://dl.rocky.invalid/pub/rocky/{releasever}/AppStream/{machine}/os/"]
        signed: packages
    kernels:
      - id: "5.14"
        releases: "5.14.0-*.el9*.{x86_64,aarch64}*"
        flavours: {amd64: [default, rt], arm64: [default]}
        repositories: [baseos, appstream]
        compilers: [gcc]
        headers: ["kernel-devel-{release}", "kernel-headers-{release}"]
        image: ["kernel-core-{release}"]
        modules: ["kernel-modules-core-{release}", "kernel-modules-{release}"]
      - id: "5.14-64k"
        releases: "5.14.0-*.el9*.aarch64+64k"
        flavours: {arm64: ["64k"]}
        repositories: [baseos, appstream]
        compilers: [gcc]
        headers: ["kernel-64k-devel-{plain}"]
        image: ["kernel-64k-core-{plain}"]
    tools: {runtime: [kmod], jit: [make, elfutils-libelf-devel]}
    drivers:
      - id: "580"
        branch: "580"
        version: 580.178.04
        payload: runfile
        module_types: [open, proprietary]
        url: "https://us.download.nvidia.com/tesla/{version}/NVIDIA-Linux-{machine}-{version}.run"
        sha256: {amd64: "DIGEST", arm64: "DIGEST"}
""".replace("DIGEST", "0" * 64)

SIGNED = "595.71.05"
"""A driver whose modules the distribution builds and signs, as Red Hat does in RHEL 10's Extensions."""
KMOD_MATRIX = (
    MATRIX.replace(
        "    kernels:\n",
        "      - {id: extensions, signed: packages, entitled: true, role: extra, optional: true}\n"
        "    kernels:\n",
        1,
    ).replace(
        "gpus:\n",
        """\
  - {id: "595", designation: PB, archs: [amd64, arm64], module_types: [open], payloads: [runfile],
     gpus: [ampere], systems: [{id: rocky}], cuda: "13"}
gpus:
""",
        1,
    )
    + """\
      - id: 595-kmod
        branch: "595"
        version: 595.71.05
        payload: runfile
        variants: [precompiled]
        module_types: [open]
        vendor_modules: true
        repositories: [extensions]
        modules:
          - {id: open, packages: ["kmod-{variant-}nvidia-open-{version}-{kernel_version}"]}
        url: "https://us.download.nvidia.com/tesla/{version}/NVIDIA-Linux-{machine}-{version}.run"
"""
)
"""With the row of such a driver, and the repository of a subscription that has its modules."""

MODULES = """\
---
document: modulemd
version: 2
data:
  name: make
  stream: next
  version: 9070020260101000000
  context: rhel9
  arch: x86_64
  summary: the next make
  description: the next make
  license: {module: [MIT]}
  artifacts:
    rpms:
      - make-1:9.0-1.module+el9.x86_64
...
---
document: modulemd-defaults
version: 1
data:
  module: perl
  stream: "5.32"
  profiles: {"5.32": [common]}
...
---
document: modulemd
version: 2
data:
  name: perl
  stream: "5.32"
  version: 1
  context: c
  arch: x86_64
  summary: perl
  description: perl
  license: {module: [MIT]}
  artifacts:
    rpms:
      - perl-interpreter-4:5.32.1-481.el9.x86_64
  profiles:
    common: {rpms: [perl-interpreter]}
...
"""


def _base(machine: str) -> list[Rpm]:
    libc = ("libc.so.6()(64bit)", "libc.so.6(GLIBC_2.34)(64bit)")
    exact = "2.34-125.el9"
    langpack = (f"glibc-langpack = {exact}",)
    glibc = Rpm(
        name="glibc",
        version="2.34",
        release="125.el9",
        arch=machine,
        requires=(f"glibc-common = {exact}", *langpack),
        provides=libc,
    )
    return [
        glibc,
        replace(glibc, name="glibc-common", requires=(f"glibc = {exact}",), provides=()),
        *(
            replace(glibc, name=name, requires=(), provides=langpack)
            for name in ("glibc-all-langpacks", "glibc-minimal-langpack")
        ),
        Rpm(
            name="bash",
            version="5.1.8",
            release="9.el9",
            arch=machine,
            requires=libc[:1],
            provides=("/bin/sh",),
            files={"/usr/bin/sh": ""},
        ),
        Rpm(name="kmod", version="28", release="10.el9", arch=machine, requires=("/usr/bin/sh", libc[1])),
        Rpm(
            name="elfutils-libelf",
            version="0.192",
            release="5.el9",
            arch=machine,
            requires=libc[:1],
            provides=("libelf.so.1()(64bit)",),
        ),
    ]


def _app(machine: str) -> list[Rpm]:
    libc = "libc.so.6()(64bit)"
    return [
        Rpm(
            name="python3.12",
            version="3.12.9",
            release="1.el9",
            arch=machine,
            requires=("python3.12-libs = 3.12.9-1.el9",),
        ),
        Rpm(name="python3.12-libs", version="3.12.9", release="1.el9", arch=machine, requires=(libc,)),
        Rpm(
            name="gcc",
            version="11.5.0",
            release="5.el9",
            arch=machine,
            requires=(libc, "(annobin if redhat-rpm-config)", "(cpp or cpp-toolset)"),
        ),
        Rpm(name="cpp", version="11.5.0", release="5.el9", arch=machine, requires=(libc,)),
        Rpm(name="annobin", version="12.70", release="1.el9", arch=machine),
        Rpm(name="redhat-rpm-config", version="209", release="1.el9"),
        Rpm(name="make", version="4.3", release="8.el9", arch=machine, epoch="1", requires=(libc,)),
        # of a module stream that nobody enabled
        Rpm(name="make", version="9.0", release="1.module+el9", arch="x86_64", epoch="1"),
        Rpm(
            name="elfutils-libelf-devel",
            version="0.192",
            release="5.el9",
            arch=machine,
            requires=("elfutils-libelf = 0.192-5.el9", "perl-interpreter >= 4:5.30"),
        ),
        Rpm(name="perl-interpreter", version="5.32.1", release="481.el9", arch=machine, epoch="4"),
        # for another machine: no part of this index
        Rpm(name="gcc", version="99", release="1.el9", arch="i686"),
    ]


def _core(kernel: str, machine: str, variant: str = "") -> Rpm:
    version, _, release = kernel.partition("-")
    uname = f"{kernel}.{machine}" + (f"+{variant}" if variant else "")
    symbols = (f"kernel(symbol_{number}) = 0x{number:08x}" for number in range(20))
    name = f"kernel-{variant}-core" if variant else "kernel-core"
    return Rpm(
        name=name,
        version=version,
        release=release,
        arch=machine,
        provides=(f"kernel-uname-r = {uname}", "installonlypkg(kernel)", *symbols),
        zeros=SMALLEST,
    )


def _devel(kernel: str, machine: str, variant: str = "", pci: str = THREE) -> Rpm:
    version, _, release = kernel.partition("-")
    uname = f"{kernel}.{machine}" + (f"+{variant}" if variant else "")
    tree = f"/usr/src/kernels/{uname}"
    return Rpm(
        name=f"kernel-{variant}-devel" if variant else "kernel-devel",
        version=version,
        release=release,
        arch=machine,
        provides=(f"kernel-devel-uname-r = {uname}", "installonlypkg(kernel)"),
        requires=("libelf.so.1()(64bit)", "libc.so.6(GLIBC_2.34)(64bit)", "perl-interpreter"),
        files={f"{tree}/include/linux/pci.h": f"{pci}\n", f"{tree}/Makefile": "all:"},
    )


def _modules(kernel: str, machine: str) -> list[Rpm]:
    version, _, release = kernel.partition("-")
    names = ("kernel-modules-core", "kernel-modules")
    return [Rpm(name=name, version=version, release=release, arch=machine) for name in names]


def _headers(kernel: str, machine: str) -> Rpm:
    version, _, release = kernel.partition("-")
    return Rpm(name="kernel-headers", version=version, release=release, arch=machine)


def packages(machine: str) -> dict[str, list[Rpm]]:
    """What the two repositories have for a machine."""
    base = [*_base(machine), *(_core(kernel, machine) for kernel in (OLD, BARE, NEW))]
    base += [one for kernel in (OLD, NEW) for one in _modules(kernel, machine)]
    app = [*_app(machine), *(_headers(kernel, machine) for kernel in (OLD, NEW))]
    app += [_devel(OLD, machine), _devel(NEW, machine, pci=FOUR)]
    if machine == "aarch64":
        base += [_core(NEW, machine, "64k")]
        app += [_devel(NEW, machine, "64k", pci=FOUR)]
    return {"BaseOS": base, "AppStream": app}


def kmod(
    kernel: str,
    machine: str,
    variant: str = "",
    *,
    driver: str = SIGNED,
    release: int = 3,
    made_for: str = "",
) -> Rpm:
    """Modules of one kernel, named after it without its distribution.

    What they provide has it whole; `made_for` is another kernel that they say they are for.
    """
    suffix = f"-{variant}" if variant else ""
    plain, _, dist = kernel.partition(".el")
    return Rpm(
        name=f"kmod{suffix}-nvidia-open-{driver}-{plain}",
        version=driver,
        release=f"{release}.el{dist}",
        epoch="3",
        arch=machine,
        requires=(f"(kernel{suffix} = {kernel} if kernel{suffix})",),
        provides=(
            f"kernel{suffix}-modules = {made_for or kernel}.{machine}",
            f"nvidia-kmod = 3:{driver}",
            f"kmod-nvidia-open = 3:{driver}",
        ),
    )


def publish_kmods(folder: Path, rpms: list[Rpm]) -> None:
    """Write a repository of finished modules, signed by nobody, as Red Hat's own are."""
    build_all(rpms, folder / "Packages")
    index(folder)


def publish(folder: Path, machine: str, key: SigningKey | None) -> None:
    """Write both repositories for a machine, their repomd.xml signed where there is a key."""
    for name, rpms in packages(machine).items():
        repository = folder / name / machine / "os"
        build_all(rpms, repository / "Packages")
        index(repository)
        if name == "AppStream":
            add_metadata(repository, "modules", MODULES)
        if key is not None:
            sign_index(repository, key)


def rocky_matrix(text: str = MATRIX) -> Matrix:
    return parse_matrix(text.encode(), name="site.yaml")
