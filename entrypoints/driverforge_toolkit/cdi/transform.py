"""Spec to spec: order, duplicates, the device of all devices, and paths from one root to another. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from typing import TypeVar

from driverforge_core.errors import InputError
from driverforge_toolkit.cdi.conformance import valid_name
from driverforge_toolkit.cdi.spec import (
    ContainerEdits,
    DeviceNode,
    Spec,
    SpecDevice,
    SpecHook,
    SpecMount,
    joined_edits,
)

T = TypeVar("T")
Move = Callable[[str], str]


def with_edits_changed(spec: Spec, change: Callable[[ContainerEdits], ContainerEdits]) -> Spec:
    """`change` made to the common edits and to every device's."""
    devices = tuple(replace(device, edits=change(device.edits)) for device in spec.devices)
    return replace(spec, devices=devices, edits=change(spec.edits))


def deduplicated(spec: Spec) -> Spec:
    return with_edits_changed(spec, _without_duplicates)


def _without_duplicates(edits: ContainerEdits) -> ContainerEdits:
    return ContainerEdits(
        env=_unique(edits.env),
        device_nodes=_unique(edits.device_nodes),
        net_devices=_unique(edits.net_devices),
        hooks=_unique(edits.hooks),
        mounts=_unique(edits.mounts),
        intel_rdt=edits.intel_rdt,
        additional_gids=_unique(edits.additional_gids),
    )


def _unique(items: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(items))


def simplified(spec: Spec) -> Spec:
    """The spec without duplicates, and without what the common edits add anyway.

    A device keeps its edits where nothing would be left of them: runtimes refuse an empty device.
    """
    # what is in the common edits is in every container anyway
    spec = deduplicated(spec)
    devices = tuple(
        replace(device, edits=_without(device.edits, spec.edits) or device.edits) for device in spec.devices
    )
    return replace(spec, devices=devices)


def _without(edits: ContainerEdits, common: ContainerEdits) -> ContainerEdits:
    return replace(
        edits,
        env=_not_in(edits.env, common.env),
        device_nodes=_not_in(edits.device_nodes, common.device_nodes),
        hooks=_not_in(edits.hooks, common.hooks),
        mounts=_not_in(edits.mounts, common.mounts),
        additional_gids=_not_in(edits.additional_gids, common.additional_gids),
    )


def _not_in(items: tuple[T, ...], others: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(item for item in items if item not in others)


def in_order(spec: Spec) -> Spec:
    """Devices by name; nodes and mounts parents first. Hooks keep their order: they run in it."""
    ordered = replace(spec, devices=tuple(sorted(spec.devices, key=lambda device: device.name)))
    return with_edits_changed(ordered, _edits_in_order)


def _edits_in_order(edits: ContainerEdits) -> ContainerEdits:
    return replace(
        edits,
        env=tuple(sorted(edits.env)),
        device_nodes=nodes_in_order(edits.device_nodes),
        mounts=mounts_in_order(edits.mounts),
        additional_gids=tuple(sorted(edits.additional_gids)),
    )


def nodes_in_order(nodes: Iterable[DeviceNode]) -> tuple[DeviceNode, ...]:
    return tuple(sorted(nodes, key=lambda node: _depth_first(node.path)))


def mounts_in_order(mounts: Iterable[SpecMount]) -> tuple[SpecMount, ...]:
    return tuple(sorted(mounts, key=lambda mount: _depth_first(mount.container_path)))


# parents first: a mount on a folder hides what was mounted below it before
def _depth_first(path: str) -> tuple[int, str]:
    return path.count("/"), path


def with_merged_device(devices: Sequence[SpecDevice], name: str = "all") -> tuple[SpecDevice, ...]:
    """`devices`, and one more with the edits of them all, unless one has that name already.

    Raises InputError for a name that CDI does not allow.
    """
    if not valid_name(name):
        raise InputError(
            f"{name!r} is not a CDI device name",
            resolution="letters, digits, '_', '-', '.' and ':', no sign at either end",
        )
    if not devices or any(device.name == name for device in devices):
        return tuple(devices)
    return (
        *devices,
        SpecDevice(name=name, edits=_without_duplicates(joined_edits([device.edits for device in devices]))),
    )


def moved_path(path: str, root: str, target: str) -> str:
    """`path` with `target` in the place of its leading `root`; a path that is not below `root` stays."""
    root, target = root.rstrip("/"), target.rstrip("/")
    # an argument of a hook may be anything: an option, a name, a relative link
    if not path.startswith("/"):
        return path
    if path == root or path.startswith(f"{root}/"):
        return (target + path[len(root) :].rstrip("/")) or "/"
    return path


class PathSide(str, Enum):
    """Which paths of a spec: those on the host, or those in the container."""

    HOST = "host"
    CONTAINER = "container"


def root_moved(spec: Spec, side: PathSide, root: str, target: str) -> Spec:
    """Paths of one side from `root` to `target`."""
    return (host_moved if side is PathSide.HOST else container_moved)(spec, root, target)


def host_moved(spec: Spec, root: str, target: str) -> Spec:
    """Paths on the host from `root` to `target`; what the container sees stays."""

    def move(path: str) -> str:
        return moved_path(path, root, target)

    def change(edits: ContainerEdits) -> ContainerEdits:
        return replace(_host_sides(edits, move), hooks=tuple(_host_hook(hook, move) for hook in edits.hooks))

    return with_edits_changed(spec, change)


def driver_moved(spec: Spec, *, driver: tuple[str, str], dev: tuple[str, str]) -> Spec:
    """Host paths from our view to the host's.

    (here, there) of the driver root, and of the root that has /dev.

    A path below both roots is a device file, so /dev is tried first, and each path moves once. Hooks stay:
    they are named by the host's paths from the start.
    """
    here, there = (f"{root.rstrip('/')}/dev" for root in dev)

    def move(path: str) -> str:
        if path == here or path.startswith(f"{here}/"):
            return moved_path(path, here, there)
        return moved_path(path, *driver)

    return with_edits_changed(spec, lambda edits: _host_sides(edits, move))


def _host_sides(edits: ContainerEdits, move: Move) -> ContainerEdits:
    return replace(
        edits,
        device_nodes=tuple(
            replace(node, host_path=move(node.host_path) if node.host_path else "")
            for node in edits.device_nodes
        ),
        mounts=tuple(replace(mount, host_path=move(mount.host_path)) for mount in edits.mounts),
    )


def _host_hook(hook: SpecHook, move: Move) -> SpecHook:
    """The hook, with its paths on the host moved.

    Runtimes start a hook's program in their own mount namespace, but for startContainer, whose program is in
    the container. The arguments of a createContainer hook are paths in the container.
    """
    if hook.name == "startContainer":
        return hook
    args = (
        hook.args
        if hook.name == "createContainer"
        else tuple(_moved_argument(arg, move) for arg in hook.args)
    )
    return replace(hook, path=move(hook.path), args=args)


def container_moved(spec: Spec, root: str, target: str) -> Spec:
    """Paths in the container from `root` to `target`; what is on the host stays."""

    def move(path: str) -> str:
        return moved_path(path, root, target)

    def change(edits: ContainerEdits) -> ContainerEdits:
        return replace(
            edits,
            device_nodes=tuple(_container_node(node, move) for node in edits.device_nodes),
            mounts=tuple(replace(mount, container_path=move(mount.container_path)) for mount in edits.mounts),
            hooks=tuple(_container_hook(hook, move) for hook in edits.hooks),
        )

    return with_edits_changed(spec, change)


def _container_node(node: DeviceNode, move: Move) -> DeviceNode:
    """Without a host path, the node is at its own path on the host. That is kept when the path moves."""
    path = move(node.path)
    return replace(node, path=path, host_path=node.host_path or (node.path if path != node.path else ""))


def _container_hook(hook: SpecHook, move: Move) -> SpecHook:
    if hook.name not in ("createContainer", "startContainer"):
        return hook
    path = move(hook.path) if hook.name == "startContainer" else hook.path
    return replace(hook, path=path, args=tuple(_moved_argument(arg, move) for arg in hook.args))


def _moved_argument(argument: str, move: Move) -> str:
    """'TARGET::LINK' holds two paths."""
    return "::".join(move(part) for part in argument.split("::"))
