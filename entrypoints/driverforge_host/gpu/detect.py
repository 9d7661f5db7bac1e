"""NVIDIA's PCI functions in sysfs, and which module is loaded."""

from __future__ import annotations

from collections.abc import Iterator

from driverforge_host.catalogue import NVSWITCHES
from driverforge_host.gpu.pci import PciDevice, parse_sysfs
from driverforge_host.ports import Files, text_of

LOADED_VERSION = "/sys/module/nvidia/version"


def loaded_version(files: Files) -> str:
    """The version of the driver's loaded module, '' where none is loaded."""
    return text_of(files, LOADED_VERSION).strip()


def loaded_type(version: str) -> str:
    """'open' or 'proprietary', by the text of /proc/driver/nvidia/version; '' without a text.

    The first line of the open module says 'Open Kernel Module'.
    """
    if not version:
        return ""
    return "open" if "Open Kernel Module" in version.splitlines()[0] else "proprietary"


def pci_devices(files: Files) -> Iterator[PciDevice]:
    base = "/sys/bus/pci/devices"
    # a device may go away while it is read: one without a vendor or class is left out
    for address in files.list_dir(base):
        driver = files.resolve(f"{base}/{address}/driver") if files.exists(f"{base}/{address}/driver") else ""
        texts = {name: text_of(files, f"{base}/{address}/{name}") for name in ("vendor", "device", "class")}
        if all(texts.values()):
            yield parse_sysfs(
                address,
                vendor=texts["vendor"],
                device=texts["device"],
                class_code=texts["class"],
                driver=driver,
            )


def is_nvswitch(device: PciDevice) -> bool:
    """Whether it is an NVSwitch, by class and id.

    The class alone is not enough: NVIDIA's old chipsets have other functions of it.
    """
    return device.is_nvswitch and any(first <= device.device <= last for first, last in NVSWITCHES)
