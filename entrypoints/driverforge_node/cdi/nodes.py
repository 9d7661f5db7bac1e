"""Device files as CDI describes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from posixpath import dirname

from driverforge_node.cdi.hooks import CHMOD, Hooks
from driverforge_node.cdi.roots import View, joined
from driverforge_node.cdi.spec import DeviceNode, Edits

CONTROL = ("/dev/nvidia-modeset", "/dev/nvidia-uvm-tools", "/dev/nvidia-uvm", "/dev/nvidiactl")
MANAGEMENT = (
    "/dev/nvidia*",
    "/dev/nvidia-caps/nvidia-cap*",
    "/dev/nvidia-caps-imex-channels/channel*",
)
NOT_MANAGEMENT = (
    "nvidia-fs",
    "nvidia-nvswitch",
    "nvidia-nvlink",
)  # NVSwitch, NVLink and storage have kinds of their own
IMEX = "/dev/nvidia-caps-imex-channels/channel"
NO_GIDS = "no-additional-gids-for-device-nodes"  # feature flag, upstream's name
_CHMOD_FOLDERS = ("/dev/dri", "/dev/nvidia-caps")
_OTHERS = 0o006


def char_devices(view: View, patterns: Iterable[str]) -> tuple[str, ...]:
    """Character devices below the dev root that fit one of the patterns, each once; a pattern's folder is literal."""
    return tuple(dict.fromkeys(path for pattern in patterns for path in _fitting(view, pattern)))


def _fitting(view: View, pattern: str) -> Iterator[str]:
    folder = dirname(pattern)
    for name in view.dev.list_dir(folder):
        path = f"{folder}/{name}"
        if fnmatchcase(path, pattern) and view.dev.device_number(path):
            yield path


def management_devices(view: View) -> tuple[str, ...]:
    """Every device of the driver that is there, for containers that administrate it."""
    found = char_devices(view, MANAGEMENT)
    return tuple(path for path in found if not path.removeprefix("/dev/").startswith(NOT_MANAGEMENT))


def plain_node(view: View, path: str) -> DeviceNode:
    """A node without numbers: the runtime takes them from the host when it starts a container."""
    host = joined(view.roots.dev_seen, path)
    return DeviceNode(path=path, host_path=host if host != path else "")


def node(view: View, path: str) -> DeviceNode:
    """A node with the numbers, mode and group that it has now."""
    bare, numbers, found = plain_node(view, path), view.dev.device_number(path), view.dev.metadata(path)
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


def node_edits(
    view: View, paths: Iterable[str], hooks: Hooks, *, flags: frozenset[str] = frozenset()
) -> Edits:
    """The nodes, the groups that a user in the container needs for them, and the hook for their folders (off by default)."""
    nodes = tuple(node(view, path) for path in paths)
    folders = [folder for folder in _CHMOD_FOLDERS if any(dirname(found.path) == folder for found in nodes)]
    gids = (
        []
        if NO_GIDS in flags
        else [gid for found in nodes if (gid := additional_gid(found.file_mode, found.gid))]
    )
    return Edits(
        device_nodes=nodes, additional_gids=tuple(dict.fromkeys(gids)), hooks=hooks.make(CHMOD, *folders)
    )


def additional_gid(mode: int | None, gid: int | None) -> int | None:
    """The group without which a node of this mode cannot be used; None where everybody may, or where it is root's."""
    return gid if gid and mode is not None and mode & _OTHERS != _OTHERS else None
