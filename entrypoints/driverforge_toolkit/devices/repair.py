"""Device files and links in /dev/char that are missing or wrong: plan them, then make them.

systemd and runc find a device by its link MAJOR:MINOR in /dev/char. Without the links, `systemctl
daemon-reload` takes the GPUs from running containers (nvidia-container-toolkit#48).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from driverforge_core.errors import StorageFailed
from driverforge_host.gpu.device_files import DeviceFile
from driverforge_host.ports import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRepair:
    """A device file that is missing, or has the numbers `was` that its module had at another time."""

    file: DeviceFile
    was: tuple[int, int] | None = None

    def describe(self) -> str:
        before = f", which is {self.was[0]}:{self.was[1]} now" if self.was else ""
        return f"{'correct' if self.was else 'make'} {self.file}{before}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRepair:
    """A link that is missing, or leads to `was` instead."""

    link: str
    target: str
    was: str = ""

    def describe(self) -> str:
        before = f", which leads to {self.was} now" if self.was else ""
        return f"{'correct' if self.was else 'link'} {self.link} -> {self.target}{before}"


def plan_files(dev: Files, wanted: Iterable[DeviceFile]) -> tuple[FileRepair, ...]:
    """What is to be made or corrected; `dev` has the dev root as its root.

    Raises StorageFailed, naming every one, where something else is at the path of a device file.
    """
    numbers = {file: dev.device_number(file.path) for file in wanted}
    strange = [
        file.path
        for file, found in numbers.items()
        if found is None and (dev.exists(file.path) or dev.is_link(file.path))
    ]
    if strange:
        raise StorageFailed(
            "something that is not a character device is in the place of a device file",
            details=[f"{dev.root.rstrip('/')}{path}" for path in strange],
            resolution="look at it (ls -l), remove it, then run this again",
        )
    return tuple(FileRepair(file=file, was=found) for file, found in numbers.items() if found != file.numbers)


def make_files(dev: Files, repairs: Iterable[FileRepair]) -> None:
    for repair in repairs:
        dev.make_dirs(repair.file.path.rpartition("/")[0])
        dev.make_char_device(repair.file.path, *repair.file.numbers)


def plan_links(
    files: Files, folder: str, wanted: Iterable[DeviceFile], *, dev_root: str = "/"
) -> tuple[LinkRepair, ...]:
    """Links in `folder` to make or correct, for device files below `dev_root`.

    Raises StorageFailed, naming every one, where something that is no link has the name of a link.
    """
    # /dev/char is the node's, so a link names the device file as the node does
    base = dev_root.rstrip("/")
    links = {f"{folder.rstrip('/')}/{file.major}:{file.minor}": file for file in wanted}
    strange = [link for link in links if files.exists(link) and not files.is_link(link)]
    if strange:
        raise StorageFailed(
            "something that is not a link has the name of a device link",
            details=strange,
            resolution="look at it (ls -l), remove it, then run this again",
        )
    found = (_link_repair(files, link, file, f"{base}{file.path}") for link, file in links.items())
    return tuple(repair for repair in found if repair)


def _link_repair(files: Files, link: str, file: DeviceFile, target: str) -> LinkRepair | None:
    if not files.is_link(link):
        return LinkRepair(link=link, target=target)
    leads_to = files.resolve(link)
    # udev and others write the same link with another text: what counts is the device at its end
    right = files.device_number(link) == file.numbers or leads_to == files.resolve(target)
    return None if right else LinkRepair(link=link, target=target, was=leads_to)


def make_links(files: Files, repairs: Iterable[LinkRepair]) -> None:
    for repair in repairs:
        files.make_dirs(repair.link.rpartition("/")[0])
        files.symlink(repair.target, repair.link)
