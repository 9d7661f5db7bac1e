"""Device files as CDI describes them."""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import dirname

from driverforge_host.gpu.device_files import EVERY, char_devices
from driverforge_host.gpu.roots import DriverView, below
from driverforge_toolkit.cdi.driverfiles import EditOptions, FeatureFlag
from driverforge_toolkit.cdi.hooks import CHMOD
from driverforge_toolkit.cdi.spec import ContainerEdits, DeviceNode

# NVSwitch, NVLink and storage have kinds of their own
_NOT_MANAGEMENT = ("nvidia-fs", "nvidia-nvswitch", "nvidia-nvlink")
# folders for device nodes that an old crun made so that only root could enter them (crun#1047)
_CHMOD_FOLDERS = ("/dev/dri", "/dev/nvidia-caps")
_OTHERS = 0o006  # read and write for others


def management_devices(view: DriverView) -> tuple[str, ...]:
    """Every device of the driver that is there, for containers that administrate it."""
    found = char_devices(view, EVERY)
    return tuple(path for path in found if not path.removeprefix("/dev/").startswith(_NOT_MANAGEMENT))


def unnumbered_node(view: DriverView, path: str) -> DeviceNode:
    """A device node without numbers: the runtime takes them from the host when it starts a container."""
    host = below(view.roots.dev_seen, path)
    return DeviceNode(path=path, host_path=host if host != path else "")


def numbered_node(view: DriverView, path: str) -> DeviceNode:
    """A device node with the numbers, mode and group that it has now."""
    bare, numbers, found = unnumbered_node(view, path), view.dev.device_number(path), view.dev.metadata(path)
    if numbers is None or found is None:
        return bare
    return DeviceNode(
        path=path,
        host_path=bare.host_path,
        major=numbers[0],
        minor=numbers[1],
        file_mode=found.mode,
        permissions="rwm",
        gid=found.group or None,
    )


def node_edits(view: DriverView, paths: Iterable[str], options: EditOptions) -> ContainerEdits:
    """The nodes, the groups that a user in the container needs for them, and the hook for their folders."""
    nodes = tuple(numbered_node(view, path) for path in paths)
    folders = [folder for folder in _CHMOD_FOLDERS if any(dirname(node.path) == folder for node in nodes)]
    wanted = () if FeatureFlag.NO_GIDS in options.flags else nodes
    gids = [gid for node in wanted if (gid := additional_gid(node.file_mode, node.gid))]
    return ContainerEdits(
        device_nodes=nodes,
        additional_gids=tuple(dict.fromkeys(gids)),
        hooks=options.hooks.make(CHMOD, *folders),
    )


def additional_gid(mode: int | None, gid: int | None) -> int | None:
    """The group that may use a node of this mode, where not everybody may.

    None for root's group, which is no additional one.
    """
    return gid if gid and mode is not None and mode & _OTHERS != _OTHERS else None
