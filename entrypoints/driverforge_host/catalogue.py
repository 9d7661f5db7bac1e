"""What a node knows of the matrix: OS families, GPUs, and kernels that drivers do not compile for.

Generated from matrix.yaml by hack/generate; change it there.
"""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_core.headerprobe import HeaderProbe, ProbeRule


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuArchitecture:
    """A GPU architecture: which devices have it, and what drives them."""

    name: str
    # PCI device ids of vendor 10de, as (first, last)
    devices: tuple[tuple[int, int], ...]
    module_types: tuple[str, ...]
    branches: tuple[int, ...]


# ID of os-release(5) -> family
FAMILIES: dict[str, str] = {
    "debian": "debian",
    "ubuntu": "debian",
    "rocky": "rhel",
    "rhel": "rhel",
    "ol": "rhel",
    "amzn": "rhel",
    "sles": "suse",
}

GPUS: tuple[GpuArchitecture, ...] = (
    GpuArchitecture(
        name="kepler",
        devices=((4032, 4159), (4480, 4607), (4736, 4875)),
        module_types=("proprietary",),
        branches=(470,),
    ),
    GpuArchitecture(
        name="maxwell",
        devices=((4928, 5174), (5655, 5735), (5965, 6141)),
        module_types=("proprietary",),
        branches=(470, 535, 550, 580),
    ),
    GpuArchitecture(
        name="pascal",
        devices=((5570, 5631), (5925, 5935), (6912, 7510)),
        module_types=("proprietary",),
        branches=(470, 535, 550, 580),
    ),
    GpuArchitecture(
        name="volta", devices=((7553, 7670),), module_types=("proprietary",), branches=(470, 535, 550, 580)
    ),
    GpuArchitecture(
        name="turing",
        devices=((7682, 8185), (8578, 8657)),
        module_types=("open", "proprietary"),
        branches=(470, 535, 550, 580, 595, 610, 615, 620),
    ),
    GpuArchitecture(
        name="ampere",
        devices=((8320, 8447), (8704, 8831), (9236, 9723)),
        module_types=("open", "proprietary"),
        branches=(470, 535, 550, 580, 595, 610, 615, 620),
    ),
    GpuArchitecture(
        name="hopper",
        devices=((8962, 9025), (9028, 9028), (9030, 9031), (9033, 9200)),
        module_types=("open", "proprietary"),
        branches=(535, 550, 580, 595, 610, 615, 620),
    ),
    GpuArchitecture(
        name="grace-hopper",
        devices=((9026, 9027), (9029, 9029), (9032, 9032)),
        module_types=("open",),
        branches=(535, 550, 580, 595, 610, 615, 620),
    ),
    GpuArchitecture(
        name="ada",
        devices=((9857, 10488),),
        module_types=("open", "proprietary"),
        branches=(535, 550, 580, 595, 610, 615, 620),
    ),
    GpuArchitecture(
        name="blackwell",
        devices=((10496, 13120),),
        module_types=("open",),
        branches=(580, 595, 610, 615, 620),
    ),
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
        drivers=(
            (535, "", ""),
            (550, "", ""),
            (570, "", ""),
            (580, "580.126.09", ""),
            (590, "590.48.01", ""),
        ),
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
        drivers=(
            (535, "535.309.01", "535.274.02-2"),
            (550, "", "550.163.01-5"),
            (570, "", ""),
            (580, "580.126.09", ""),
            (590, "590.48.01", ""),
        ),
        module_types=("open", "proprietary"),
        since=(6, 3),
        reason="struct vm_area_struct has no __vm_flags in this kernel",
    ),
    ProbeRule(
        id="no-in-irq",
        probe=HeaderProbe(
            kind="missing-macro", symbol="in_irq", header="include/linux/preempt.h", struct="", arguments=None
        ),
        drivers=(
            (470, "", ""),
            (535, "535.309.01", "535.274.02-2"),
            (550, "", "550.163.01-5"),
            (570, "", ""),
            (580, "580.119.02", ""),
            (590, "590.48.01", ""),
        ),
        module_types=("open", "proprietary"),
        since=(),
        reason="in_irq() is gone from this kernel",
    ),
    ProbeRule(
        id="no-strncpy",
        probe=HeaderProbe(
            kind="missing-macro", symbol="strncpy", header="include/linux/string.h", struct="", arguments=None
        ),
        drivers=(
            (470, "", ""),
            (535, "", "535.274.02-3"),
            (550, "", ""),
            (570, "", ""),
            (580, "580.178.04", ""),
            (590, "", ""),
            (595, "595.91.07", ""),
            (610, "610.57.04", ""),
        ),
        module_types=("open", "proprietary"),
        since=(7, 2),
        reason="strncpy() is gone from this kernel",
    ),
)
