"""What a node knows of the matrix: operating systems, GPUs, and kernels that drivers do not compile for.

Generated from matrix.yaml by hack/generate; change it there.
"""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_core.headerprobe import HeaderProbe, ProbeRule


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """An OS that images are made for. `compilers` are packages that built its kernels, `build_tools` what a build calls beside them."""

    name: str
    family: str
    package_manager: str
    codename: str
    archs: tuple[str, ...]
    compilers: tuple[str, ...]
    build_tools: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU architecture: PCI device ids of vendor 10de (first, last), module types that drive it, branches that know it."""

    name: str
    devices: tuple[tuple[int, int], ...]
    module_types: tuple[str, ...]
    branches: tuple[int, ...]


SYSTEMS: dict[str, System] = {
    "debian12": System(
        name="Debian 12 (bookworm)",
        family="debian",
        package_manager="apt",
        codename="bookworm",
        archs=("amd64", "arm64"),
        compilers=("gcc-12",),
        build_tools=("make", "libelf1", "libssl3"),
    ),
    "debian13": System(
        name="Debian 13 (trixie)",
        family="debian",
        package_manager="apt",
        codename="trixie",
        archs=("amd64", "arm64"),
        compilers=("gcc-14",),
        build_tools=("make", "libelf1t64", "libssl3t64"),
    ),
    "ubuntu22.04": System(
        name="Ubuntu 22.04 LTS (Jammy Jellyfish)",
        family="debian",
        package_manager="apt",
        codename="jammy",
        archs=("amd64", "arm64"),
        compilers=("gcc-11", "gcc-12"),
        build_tools=("make", "libelf1"),
    ),
    "ubuntu24.04": System(
        name="Ubuntu 24.04 LTS (Noble Numbat)",
        family="debian",
        package_manager="apt",
        codename="noble",
        archs=("amd64", "arm64"),
        compilers=("gcc-13",),
        build_tools=("make", "libelf1t64"),
    ),
    "ubuntu26.04": System(
        name="Ubuntu 26.04 LTS (Resolute Raccoon)",
        family="debian",
        package_manager="apt",
        codename="resolute",
        archs=("amd64", "arm64"),
        compilers=("gcc-15",),
        build_tools=("make", "libelf1t64"),
    ),
    "rhel9": System(
        name="Red Hat Enterprise Linux 9",
        family="rhel",
        package_manager="dnf",
        codename="",
        archs=("amd64", "arm64"),
        compilers=("gcc",),
        build_tools=("make", "elfutils-libelf"),
    ),
    "rhel8": System(
        name="Red Hat Enterprise Linux 8",
        family="rhel",
        package_manager="dnf",
        codename="",
        archs=("amd64", "arm64"),
        compilers=("gcc",),
        build_tools=("make", "elfutils-libelf"),
    ),
    "rhel10": System(
        name="Red Hat Enterprise Linux 10",
        family="rhel",
        package_manager="dnf",
        codename="",
        archs=("amd64", "arm64"),
        compilers=("gcc",),
        build_tools=("make", "elfutils-libelf"),
    ),
    "rocky8": System(
        name="Rocky Linux 8",
        family="rhel",
        package_manager="dnf",
        codename="",
        archs=("amd64", "arm64"),
        compilers=("gcc",),
        build_tools=("make", "elfutils-libelf"),
    ),
    "rocky9": System(
        name="Rocky Linux 9",
        family="rhel",
        package_manager="dnf",
        codename="",
        archs=("amd64", "arm64"),
        compilers=("gcc",),
        build_tools=("make", "elfutils-libelf"),
    ),
    "rocky10": System(
        name="Rocky Linux 10",
        family="rhel",
        package_manager="dnf",
        codename="",
        archs=("amd64", "arm64"),
        compilers=("gcc",),
        build_tools=("make", "elfutils-libelf"),
    ),
    "ol9": System(
        name="Oracle Linux 9",
        family="rhel",
        package_manager="dnf",
        codename="",
        archs=("amd64", "arm64"),
        compilers=("gcc",),
        build_tools=("make", "elfutils-libelf"),
    ),
    "sles15.7": System(
        name="SUSE Linux Enterprise Server 15 SP7",
        family="suse",
        package_manager="zypper",
        codename="",
        archs=("amd64", "arm64"),
        compilers=("gcc7",),
        build_tools=("make", "libelf1"),
    ),
}

GPUS: tuple[Gpu, ...] = (
    Gpu(
        name="kepler",
        devices=((4032, 4159), (4480, 4607), (4736, 4875)),
        module_types=("proprietary",),
        branches=(470,),
    ),
    Gpu(
        name="maxwell",
        devices=((4928, 5174), (5655, 5735), (5965, 6141)),
        module_types=("proprietary",),
        branches=(470, 535, 550, 580),
    ),
    Gpu(
        name="pascal",
        devices=((5570, 5631), (5925, 5935), (6912, 7510)),
        module_types=("proprietary",),
        branches=(470, 535, 550, 580),
    ),
    Gpu(name="volta", devices=((7553, 7670),), module_types=("proprietary",), branches=(470, 535, 550, 580)),
    Gpu(
        name="turing",
        devices=((7682, 8185), (8578, 8657)),
        module_types=("open", "proprietary"),
        branches=(470, 535, 550, 580, 595, 610),
    ),
    Gpu(
        name="ampere",
        devices=((8320, 8447), (8704, 8831), (9236, 9723)),
        module_types=("open", "proprietary"),
        branches=(470, 535, 550, 580, 595, 610),
    ),
    Gpu(
        name="hopper",
        devices=((8962, 9025), (9028, 9028), (9030, 9031), (9033, 9200)),
        module_types=("open", "proprietary"),
        branches=(535, 550, 580, 595, 610),
    ),
    Gpu(
        name="grace-hopper",
        devices=((9026, 9027), (9029, 9029), (9032, 9032)),
        module_types=("open",),
        branches=(535, 550, 580, 595, 610),
    ),
    Gpu(
        name="ada",
        devices=((9857, 10488),),
        module_types=("open", "proprietary"),
        branches=(535, 550, 580, 595, 610),
    ),
    Gpu(name="blackwell", devices=((10496, 13120),), module_types=("open",), branches=(580, 595, 610)),
)

NVSWITCHES: tuple[tuple[int, int], ...] = ((6897, 6897), (8867, 8867))

PROBES: tuple[ProbeRule, ...] = (
    ProbeRule(
        id="pci-resize-resource-4",
        probe=HeaderProbe(
            kind="arguments",
            symbol="pci_resize_resource",
            header="include/linux/pci.h",
            struct="",
            arguments=4,
        ),
        drivers=((535, ""), (550, ""), (570, "")),
        module_types=("open",),
        since=(),
        reason="pci_resize_resource() has four arguments in this kernel, the driver's open modules call it with three",
    ),
    ProbeRule(
        id="no-private-vm-flags",
        probe=HeaderProbe(
            kind="missing-member",
            symbol="__vm_flags",
            header="include/linux/mm_types.h",
            struct="vm_area_struct",
            arguments=None,
        ),
        drivers=((535, ""), (550, "")),
        module_types=("open", "proprietary"),
        since=(6, 3),
        reason="struct vm_area_struct has no __vm_flags in this kernel",
    ),
    ProbeRule(
        id="no-in-irq",
        probe=HeaderProbe(
            kind="missing-macro", symbol="in_irq", header="include/linux/preempt.h", struct="", arguments=None
        ),
        drivers=((470, ""), (535, "535.309.01"), (550, "")),
        module_types=("open", "proprietary"),
        since=(),
        reason="in_irq() is gone from this kernel",
    ),
)
