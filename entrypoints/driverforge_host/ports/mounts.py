"""Mounts of this process, the table of /proc/PID/mountinfo (proc(5)), and paths across mount namespaces.

What a pod calls /runtime/config-dir/config.toml is a file of the node: two mount tables in, a path out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A line of /proc/self/mountinfo (proc(5))."""

    mount_id: int
    parent_id: int
    root: str
    target: str
    propagation: str  # 'private', 'shared', 'slave', 'shared,slave', 'unbindable'
    fs_type: str
    source: str
    device: str = ""  # '8:1': equal for two mounts of one file system


def unescape(text: str) -> str:
    """proc(5): space, tab, newline and backslash are octal escapes in mountinfo."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), text)


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """The mounts of a /proc/PID/mountinfo, in the kernel's order.

    A later mount on the same target lies on top.
    """
    # the kernel escapes \n in names, and nothing else that splitlines() takes for the end of a line
    return tuple(_parse_line(line) for line in text.split("\n") if line)


def _parse_line(line: str) -> Mount:
    left, _, right = line.partition(" - ")
    mount_id, parent, device, root, target, _options, *optional = left.split(" ")
    fs_type, source, *_ = right.split(" ")
    kinds = [
        name
        for name, tag in (("shared", "shared:"), ("slave", "master:"))
        if any(word.startswith(tag) for word in optional)
    ]
    propagation = "unbindable" if "unbindable" in optional else ",".join(kinds) or "private"
    return Mount(
        mount_id=int(mount_id),
        parent_id=int(parent),
        root=unescape(root),
        target=unescape(target),
        propagation=propagation,
        fs_type=fs_type,
        source=unescape(source),
        device=device,
    )


def covering(path: str, table: Sequence[Mount]) -> Mount | None:
    """The mount that `path` (absolute, without links) lies on, None where no mount covers it.

    Of several on one target the last one counts: it hides the others.
    """
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
    """A path of one mount namespace as another one calls it; None where that does not see the file.

    `inside` is the mount table of the namespace that `path` is of, `outside` the table of the other. Of
    several names it is the same one, else the shortest.
    """
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
    return path if path in names else min(names, key=len, default=None)


Propagation = Literal["private", "shared", "slave", "unbindable"]


class Mounts(Protocol):
    """The mount namespace of this process."""

    def table(self) -> tuple[Mount, ...]:
        """In the kernel's order: a later mount on the same target lies on top."""

    def rbind(self, source: str, target: str) -> None: ...
    def set_propagation(self, target: str, kind: Propagation, *, recursive: bool = False) -> None: ...
    def unmount(self, target: str, *, lazy: bool = False) -> None:
        """Unmount the top mount on `target`; `lazy` is MNT_DETACH and takes everything below along."""
