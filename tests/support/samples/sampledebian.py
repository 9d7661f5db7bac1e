"""A small Debian: a matrix with one system, and repositories that have the kinds of things real ones have.

Two kernels have headers. The older one declares pci_resize_resource with three arguments; the newer one, in
the security archive, with four. There is one kernel whose headers are gone, a metapackage, a real-time
flavour, and a driver with its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from driverforge_build.matrix.load import Matrix, parse_matrix
from support.samples.aptrepo import Archive, Deb

OLD, NEW, BARE = "6.1.0-50-cloud-amd64", "6.1.0-53-cloud-amd64", "6.1.0-52-cloud-amd64"
DRIVER = "535.261.03"
THREE = "int __must_check pci_resize_resource(struct pci_dev *dev, int i, int size);"
FOUR = "int pci_resize_resource(struct pci_dev *dev, int i, int size,\n\t\t\tint exclude_bars);"

BASE_DIGEST = "ba5e" * 16
"""With it in the name of the base image, no registry is asked."""

MATRIX = """\
branches:
  - {id: "535", designation: LTSB, newest: 535.261.03, archs: [amd64, arm64], \
module_types: [open, proprietary],
     payloads: [packages, runfile], gpus: [ampere], systems: [{id: debian}, {id: ubuntu}], cuda: "12",
     eol: {date: 2026-06, source: a page}}
gpus:
  - {id: ampere, module_types: [open], devices: ["2080-20ff"]}
exclusions:
  - {id: no-realtime, flavours: ["rt-*"], reason: NVIDIA's build refuses PREEMPT_RT, source: conftest.sh}
probes:
  - id: resize
    kind: arguments
    symbol: pci_resize_resource
    header: include/linux/pci.h
    arguments: 4
    module_types: [open]
    drivers: [{branch: "535", before: 535.300.01}]
    reason: pci_resize_resource() has four arguments
    evidence: ["a compiler's log"]
systems:
  - id: debian12
    name: Debian 12
    family: debian
    package_manager: apt
    codename: bookworm
    archs: [amd64]
    base: debian:bookworm@sha256:{BASE_DIGEST}
    keyring: /nowhere/archive.gpg
    python: {package: python3, executable: /usr/bin/python3, version: "3.11"}
    repositories:
      - {id: bookworm, archive: debian, components: [main, non-free]}
      - {id: bookworm-security, archive: debian-security, components: [main], role: security}
    kernels:
      - id: "6.1"
        releases: "6.1.*"
        flavours: {amd64: [cloud-amd64]}
        repositories: [bookworm, bookworm-security]
        compilers: [gcc-12]
        headers: ["linux-headers-{release}"]
        image: ["linux-image-{release}"]
    tools: {runtime: [kmod], jit: [make]}
    drivers:
      - id: "535"
        branch: "535"
        version: 535.261.03
        payload: packages
        module_types: [open, proprietary]
        repositories: [bookworm]
        modules:
          - {id: open, packages: [nvidia-open-kernel-dkms], tree: usr/src/open}
          - {id: proprietary, packages: [nvidia-kernel-dkms], tree: usr/src/closed}
        firmware: {package: firmware-nvidia-gsp, tree: lib/firmware}
        userspace: [libcuda1]
        companions: [nvidia-modprobe]
  - id: ubuntu24.04
    like: debian12
    name: Ubuntu 24.04
    codename: noble
""".replace("{BASE_DIGEST}", BASE_DIGEST)


BOTH_BREAK = MATRIX.replace(
    "module_types: [open]\n    drivers", "module_types: [open, proprietary]\n    drivers"
)
"""The newer kernel breaks the modules of both types, so that its cell is blocked."""


def sample_matrix(text: str = MATRIX) -> Matrix:
    return parse_matrix(text.encode(), name="site.yaml")


def kernel_debs(release: str, version: str, declaration: str) -> list[Deb]:
    """Image, headers and common headers of a kernel, as Debian 12 names them."""
    common = f"linux-headers-{release.removesuffix('-cloud-amd64')}-common"
    return [
        Deb(name=f"linux-image-{release}", version=version, depends="kmod"),
        Deb(
            name=f"linux-headers-{release}",
            version=version,
            depends=f"{common} (= {version}), linux-kbuild-6.1 (>= {version}), linux-compiler-gcc-12-x86",
            files={f"usr/src/linux-headers-{release}/.config": "CONFIG_X86=y\n"},
        ),
        Deb(
            name=common,
            version=version,
            arch="all",
            files={f"usr/src/{common}/include/linux/pci.h": f"#ifndef LINUX_PCI_H\n{declaration}\n#endif\n"},
        ),
    ]


BASE = (
    Deb(name="libc6", version="2.36-9", depends="libgcc-s1"),
    Deb(name="libgcc-s1", version="12.2.0-14", depends="libc6 (>= 2.35)"),
    Deb(name="libelf1", version="0.188-2", depends="libc6"),
    Deb(name="python3", version="3.11.2-1", depends="libc6"),
    Deb(name="kmod", version="30-1", depends="libc6"),
    Deb(name="make", version="4.3-4", depends="libc6"),
    Deb(name="gcc-12", version="12.2.0-14", depends="libc6, binutils | binutils-gold"),
    Deb(name="binutils", version="2.40-2", depends="libc6"),
    Deb(name="linux-compiler-gcc-12-x86", version="6.1.176-1", depends="gcc-12"),
    Deb(name="linux-kbuild-6.1", version="6.1.176-1", depends="libc6, libelf1"),
    Deb(name="linux-image-6.1-cloud-amd64", version="6.1.176-1", depends=f"linux-image-{OLD}"),
    Deb(name=f"linux-image-{BARE}", version="6.1.180-1"),
    Deb(name="linux-image-6.1.0-50-rt-amd64", version="6.1.176-1"),
    *kernel_debs(OLD, "6.1.176-1", THREE),
)

DRIVER_PARTS = (
    Deb(
        name="libcuda1",
        version=f"{DRIVER}-1",
        depends=f"nvidia-alternative (= {DRIVER}-1), libnvidia-ml1, nvidia-alternative--kmod",
    ),
    Deb(name="libnvidia-ml1", version=f"{DRIVER}-1", depends="libc6"),
    Deb(name="nvidia-alternative", version=f"{DRIVER}-1", fields={"Provides": "nvidia-alternative--kmod"}),
    Deb(name="nvidia-modprobe", version="535.161.07-1", depends="libc6"),
    Deb(name="nvidia-kernel-dkms", version=f"{DRIVER}-1", depends="dkms"),
    Deb(name="nvidia-open-kernel-dkms", version=f"{DRIVER}-1", depends="dkms"),
    Deb(name="firmware-nvidia-gsp", version=f"{DRIVER}-1"),
)

SECURITY = (
    *kernel_debs(NEW, "6.1.187-1", FOUR),
    Deb(name="linux-kbuild-6.1", version="6.1.187-1", depends="libc6, libelf1"),
    Deb(name="libnvidia-ml1", version="535.309.01-0", depends="libc6"),
)


def publish(archive: Archive, security: Archive, *, extra: Sequence[Deb] = (), newest: bool = True) -> None:
    """Write the sample's suites. `newest=False` leaves the security archive without its kernel."""
    archive.publish("bookworm", {"main": [*BASE, *extra], "non-free": list(DRIVER_PARTS)})
    security.publish(
        "bookworm-security", {"main": list(SECURITY) if newest else list(SECURITY[3:])}, prefix="updates/"
    )


def write_matrix(folder: Path, text: str = MATRIX) -> Path:
    path = folder / "site.yaml"
    path.write_text(text)
    return path
