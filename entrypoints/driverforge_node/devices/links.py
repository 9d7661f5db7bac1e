"""Links MAJOR:MINOR in /dev/char, by which systemd and runc find a device.

Without them a `systemctl daemon-reload` takes the GPUs from running containers (nvidia-container-toolkit#48).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from driverforge_core.errors import StorageFailed
from driverforge_node.devices.nodes import Node
from driverforge_node.host.ports import Files

PATTERNS = ("/dev/nvidia*", "/dev/nvidia-caps/nvidia-cap*", "/dev/nvidia-caps-imex-channels/channel*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Linking:
    """A link that is missing, or (`was`) leads elsewhere."""

    link: str
    target: str
    was: str = ""

    def describe(self) -> str:
        before = f", which leads to {self.was} now" if self.was else ""
        return f"{'correct' if self.was else 'link'} {self.link} -> {self.target}{before}"


def plan(files: Files, folder: str, nodes: Iterable[Node], *, dev_root: str = "/") -> tuple[Linking, ...]:
    """Links in `folder` for the nodes below `dev_root`. A link that leads to a device of its numbers is right, whatever its text.

    Raises StorageFailed, naming every one, where a name is taken by something that is no link.
    """
    base = dev_root.rstrip("/")
    wanted = {f"{folder.rstrip('/')}/{node.major}:{node.minor}": node for node in nodes}
    strange = [link for link in wanted if files.exists(link) and not files.is_link(link)]
    if strange:
        raise StorageFailed(
            "something that is no link has the name of a device link",
            details=strange,
            resolution="look at it (ls -l), remove it, then run this again",
        )
    found = (_linking(files, link, node, f"{base}{node.path}") for link, node in wanted.items())
    return tuple(linking for linking in found if linking)


def _linking(files: Files, link: str, node: Node, target: str) -> Linking | None:
    if not files.is_link(link):
        return Linking(link=link, target=target)
    leads_to = files.resolve(link)
    right = files.device_number(link) == node.numbers or leads_to == files.resolve(target)
    return None if right else Linking(link=link, target=target, was=leads_to)


def make(files: Files, linkings: Iterable[Linking]) -> None:
    for linking in linkings:
        files.make_dirs(linking.link.rpartition("/")[0])
        files.symlink(linking.target, linking.link)
