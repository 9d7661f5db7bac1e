"""Device files of the driver's control interfaces and GPUs, with the numbers that the loaded modules registered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from driverforge_core.errors import StorageFailed, Unavailable
from driverforge_node.host.ports import Files

# minors as the driver and nvidia-modprobe have them (nvidia-modprobe-utils.h); modeset shares the driver's major
CONTROL_MINOR, MODESET_MINOR = 255, 254


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A character device that has to be at `path`, below a dev root."""

    path: str
    major: int
    minor: int

    @property
    def numbers(self) -> tuple[int, int]:
        return self.major, self.minor

    def __str__(self) -> str:
        return f"{self.path} ({self.major}:{self.minor})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """A node that is missing, or has the numbers `was` that its module had at another time."""

    node: Node
    was: tuple[int, int] | None = None

    def describe(self) -> str:
        before = f", which is {self.was[0]}:{self.was[1]} now" if self.was else ""
        return f"{'correct' if self.was else 'make'} {self.node}{before}"


def driver_major(majors: Mapping[str, int]) -> int:
    """The driver's major; drivers before 550 call it nvidia-frontend. Raises Unavailable where none is loaded."""
    for name in ("nvidia", "nvidia-frontend"):
        if name in majors:
            return majors[name]
    raise Unavailable(
        "no NVIDIA devices found",
        details=["/proc/devices has neither nvidia nor nvidia-frontend"],
        resolution="load the driver first (driverctl load), or add --load-kernel-modules",
    )


def control_nodes(majors: Mapping[str, int]) -> tuple[Node, ...]:
    """nvidiactl, nvidia-modeset and, where that module is loaded, the two of nvidia-uvm. Raises Unavailable without a driver."""
    driver = driver_major(majors)
    uvm = majors.get("nvidia-uvm")
    nodes = [("/dev/nvidiactl", driver, CONTROL_MINOR), ("/dev/nvidia-modeset", driver, MODESET_MINOR)]
    if uvm is not None:
        nodes += [("/dev/nvidia-uvm", uvm, 0), ("/dev/nvidia-uvm-tools", uvm, 1)]
    return tuple(Node(path=path, major=major, minor=minor) for path, major, minor in nodes)


def gpu_nodes(majors: Mapping[str, int], minors: Iterable[int]) -> tuple[Node, ...]:
    driver = driver_major(majors)
    return tuple(Node(path=f"/dev/nvidia{minor}", major=driver, minor=minor) for minor in sorted(minors))


def capability_nodes(majors: Mapping[str, int], minors: Iterable[int]) -> tuple[Node, ...]:
    """MIG's capability devices; none where the driver has no such major."""
    major = majors.get("nvidia-caps")
    wanted = () if major is None else sorted(minors)
    return tuple(
        Node(path=f"/dev/nvidia-caps/nvidia-cap{minor}", major=major or 0, minor=minor) for minor in wanted
    )


def plan(dev: Files, nodes: Iterable[Node]) -> tuple[Making, ...]:
    """What is to be made or corrected. Raises StorageFailed, naming every one, where something else is at a node's path."""
    nodes = tuple(nodes)
    numbers = {node: dev.device_number(node.path) for node in nodes}
    strange = [
        node.path
        for node in nodes
        if numbers[node] is None and (dev.exists(node.path) or dev.is_link(node.path))
    ]
    if strange:
        raise StorageFailed(
            "something that is no character device is in the place of a device file",
            details=[f"{dev.root.rstrip('/')}{path}" for path in strange],
            resolution="look at it (ls -l), remove it, then run this again",
        )
    return tuple(Making(node=node, was=numbers[node]) for node in nodes if numbers[node] != node.numbers)


def make(dev: Files, makings: Iterable[Making]) -> None:
    for making in makings:
        dev.make_dirs(making.node.path.rpartition("/")[0])
        dev.make_char_device(making.node.path, *making.node.numbers)
