"""Repositories laid out as SUSE's: SLE_BCI with headers and build tools, a module's with kernels and a KMP.

Versions carry the number of the rebuild, which `uname -r` has not; names, and what lies where, are those of
SP7's in 2026 (SUSE/BCI-dockerfile-generator, SUSE/BCI-tests). The packages hold next to nothing.
"""

from __future__ import annotations

from pathlib import Path

from driverforge_build.discover.kernels import SMALLEST
from driverforge_build.matrix.load import Matrix, parse_matrix
from support.samples.aptrepo import SigningKey
from support.samples.rpmrepo import Rpm, build_all, index, sign_index

OLD, NEW = "6.4.0-150700.51", "6.4.0-150700.53.40"
"""Kernels as `uname -r` has them, without flavour; rebuilt once."""
DRIVER = "595.71.05"

MATRIX = """\
branches:
  - {id: "595", designation: PB, newest: 595.91.07, archs: [amd64, arm64], module_types: [open, proprietary],
     payloads: [packages, runfile], gpus: [ampere], systems: [{id: sles}], cuda: "13"}
gpus:
  - {id: ampere, module_types: [open], devices: ["2080-20ff"]}
probes:
  - {id: resize, kind: arguments, symbol: pci_resize_resource, header: include/linux/pci.h, arguments: 4,
     module_types: [open], drivers: [{branch: "595"}], reason: four arguments, evidence: [a log]}
systems:
  - id: sles15.7
    name: SLES 15 SP7
    family: suse
    package_manager: zypper
    archs: [amd64]
    base: registry.suse.com/bci/bci-base:15.7
    python: {package: python311, executable: /usr/bin/python3.11, version: "3.11"}
    repositories:
      - id: SLE_BCI
        urls: ["https://public-dl.invalid/SUSE/Products/SLE-BCI/15-SP7/{machine}/product/"]
      - {id: sle-module-basesystem, entitled: true, role: extra}
    kernels:
      - id: "6.4"
        releases: "6.4.0-150700.*-default"
        flavours: {amd64: [default]}
        repositories: [SLE_BCI, sle-module-basesystem]
        compilers: [gcc]
        headers: [kernel-default-devel, kernel-devel, kernel-macros]
        image: [kernel-default]
    tools: {runtime: [kmod], jit: [make]}
    drivers:
      - id: "595"
        branch: "595"
        version: 595.91.07
        payload: runfile
        variants: [jit]
        module_types: [open]
        url: "https://us.download.nvidia.com/tesla/{version}/NVIDIA-Linux-{machine}-{version}.run"
      - id: 595-kmp
        branch: "595"
        version: 595.71.05
        payload: packages
        variants: [precompiled]
        module_types: [open]
        vendor_modules: true
        repositories: [sle-module-basesystem]
        modules:
          - {id: open, packages: [nvidia-open-driver-G07-signed-cuda-kmp-default]}
        firmware:
          package: nvidia-open-driver-G07-signed-cuda-kmp-default
          tree: "usr/lib/firmware/nvidia/{version}"
        userspace: [nvidia-compute-G07]
"""


def _headers(kernel: str, declaration: str) -> list[Rpm]:
    version, _, release = kernel.partition("-")
    tree = f"/usr/src/linux-{kernel}"
    return [
        Rpm(name="kernel-default-devel", version=version, release=f"{release}.1", arch="x86_64"),
        Rpm(
            name="kernel-devel",
            version=version,
            release=f"{release}.1",
            files={f"{tree}/include/linux/pci.h": declaration},
        ),
        Rpm(name="kernel-macros", version=version, release=f"{release}.1"),
    ]


BCI = [
    Rpm(name="python311", version="3.11.13", release="150600.3.1", arch="x86_64"),
    Rpm(name="kmod", version="29", release="150600.11.2", arch="x86_64"),
    Rpm(name="make", version="4.2.1", release="7.3.2", arch="x86_64"),
    Rpm(name="gcc", version="7", release="3.9.1", arch="x86_64"),
    *_headers(OLD, "int pci_resize_resource(struct pci_dev *dev, int i, int size);\n"),
    *_headers(NEW, "int pci_resize_resource(struct pci_dev *dev, int i, int size, int bars);\n"),
]


def _kmp(kernel: str, driver: str = DRIVER) -> Rpm:
    return Rpm(
        name="nvidia-open-driver-G07-signed-cuda-kmp-default",
        version=f"{driver}_k{kernel.replace('-', '_')}",
        release="150700.16.8.1",
        arch="x86_64",
        requires=("kernel-default",),
    )


BASESYSTEM = [
    Rpm(name="kernel-default", version="6.4.0", release="150700.53.40.1", arch="x86_64", zeros=SMALLEST),
    _kmp("6.4.0-150700.53.40"),
    # of a later driver, and of the service pack before
    _kmp("6.4.0-150700.53.40", "595.91.07"),
    _kmp("6.4.0-150600.23.73"),
    Rpm(name="nvidia-compute-G07", version=DRIVER, release="1", arch="x86_64", epoch="3"),
]


def publish(folder: Path, packages: list[Rpm], key: SigningKey) -> None:
    build_all(packages, folder / "x86_64")
    index(folder)
    sign_index(folder, key)


def suse_matrix(text: str = MATRIX) -> Matrix:
    return parse_matrix(text.encode(), name="site.yaml")
