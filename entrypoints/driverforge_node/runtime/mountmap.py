"""Paths of one mount namespace as paths of another: what a pod calls /runtime/config-dir/config.toml is a file of the node.

Pure: two mount tables in, a path out.
"""

from __future__ import annotations

from collections.abc import Sequence

from driverforge_node.host.ports import Mount


def covering(path: str, table: Sequence[Mount]) -> Mount | None:
    """The mount that `path` (absolute, without links) lies on; of several on one target the last one hides the others."""
    found: Mount | None = None
    for mount in table:
        if under(path, mount.target) is not None and (
            found is None or len(mount.target) >= len(found.target)
        ):
            found = mount
    return found


def under(path: str, folder: str) -> str | None:
    """What of `path` is below `folder` ('' or '/x/y'), None where it is not in it."""
    if folder == "/":
        return "" if path == "/" else path
    rest = path.removeprefix(folder)
    return rest if path.startswith(folder) and rest[:1] in ("", "/") else None


def translated(path: str, inside: Sequence[Mount], outside: Sequence[Mount]) -> str | None:
    """`path` of the namespace whose table is `inside`, as the namespace of `outside` calls it; None where that does not see it."""
    mount = covering(path, inside)
    if mount is None:
        return None
    place = mount.root.rstrip("/") + (under(path, mount.target) or "")
    names = []
    for other in outside:
        rest = (
            under(place, other.root)
            if (other.device, other.fs_type) == (mount.device, mount.fs_type)
            else None
        )
        if rest is not None:
            name = other.target.rstrip("/") + rest or "/"
            if covering(name, outside) == other:
                names.append(name)
    return min(names, key=len, default=None)
