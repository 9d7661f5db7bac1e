"""PCI devices as sysfs shows them (Documentation/PCI/sysfs-pci.rst)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from driverforge_core.errors import InputError

NVIDIA_VENDOR = 0x10DE

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_GPU_CLASSES = (0x0300, 0x0302)  # VGA compatible controller, 3D controller (pci.ids)
_BRIDGE_OTHER = 0x0680  # an NVSwitch


@dataclass(frozen=True, slots=True, kw_only=True)
class PciDevice:
    """A function on the bus.

    `class_code` has 24 bits: class, subclass, programming interface. `driver` is '' where none is bound.
    """

    address: str
    vendor: int
    device: int
    class_code: int
    driver: str

    @property
    def is_gpu(self) -> bool:
        return self.vendor == NVIDIA_VENDOR and self.class_code >> 8 in _GPU_CLASSES

    @property
    def is_nvswitch(self) -> bool:
        return self.vendor == NVIDIA_VENDOR and self.class_code >> 8 == _BRIDGE_OTHER


def parse_sysfs(address: str, *, vendor: str, device: str, class_code: str, driver: str = "") -> PciDevice:
    """A device, from its directory in /sys/bus/pci/devices.

    Takes the directory's name, the texts of its files, and the target of its `driver` link. The files hold
    one hexadecimal number each, '0x10de' and a newline. Raises InputError.
    """
    if not _ADDRESS.fullmatch(address):
        raise InputError(
            f"{address!r} is not a PCI address",
            resolution="write domain:bus:device.function, e.g. 0000:3b:00.0",
        )
    try:
        numbers = [int(text.strip(), 16) for text in (vendor, device, class_code)]
    except ValueError as error:
        raise InputError(f"sysfs of {address} holds no hexadecimal number", details=[str(error)]) from error
    return PciDevice(
        address=address,
        vendor=numbers[0],
        device=numbers[1],
        class_code=numbers[2],
        driver=driver.strip().rpartition("/")[2],
    )
