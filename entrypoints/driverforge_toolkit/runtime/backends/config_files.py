"""The files that a daemon reads, in the order in which it reads them.

The root file, what it imports, the drop-in folder.
"""

from __future__ import annotations

from collections.abc import Iterator

from driverforge_core.errors import InputError, Unsupported
from driverforge_host.ports import Files, Host, Metadata, bytes_of
from driverforge_host.ports.mounts import parse_mountinfo
from driverforge_toolkit.runtime.backends.imports import imported_files
from driverforge_toolkit.runtime.formats.configfile import (
    ConfigFile,
    Contents,
    data_of,
    json_file,
    toml_file,
)
from driverforge_toolkit.runtime.model import NodePath, RuntimeDaemon, RuntimeKind

MAX_BYTES = 8 << 20  # a larger file is no configuration; containerd's own default is 12 kB
MAX_FILES = 1000


def read_files(
    host: Host, daemon: RuntimeDaemon, *, to_write: bool = False, known: Contents | None = None
) -> dict[str, ConfigFile]:
    """All files that the daemon reads; the root file and our drop-in also where these are not there.

    `known` are files that were read before. One that has the same bytes still is handed on, so that it is not
    parsed again.

    Raises InputError for a broken or huge one, and Unsupported for too many. With `to_write`, raises
    InputError for what a pattern of containerd's imports matches and keeps it from starting: a folder, or a
    link to nothing. Without, that is left out.
    """
    if daemon.kind == "containerd":
        return _with_imports(host, daemon, to_write=to_write, known=known or {})
    paths: list[str] = [daemon.config]
    if daemon.kind == "crio":
        folder, _, name = daemon.drop_in.rpartition("/")
        paths += _below(host.node, folder, (name,))
    return {path: read_file(host.node, daemon.kind, path, known or {}) for path in paths}


def read_file(node: Files, kind: RuntimeKind, path: str, known: Contents | None = None) -> ConfigFile:
    """A file of a daemon of that kind, as it is. Raises as `contents`; `known` as of `read_files`."""
    none = json_file(path) if kind == "docker" else toml_file(path)
    return (known or {}).get(path, none).with_data(contents(node, path))


def _below(node: Files, folder: str, also: tuple[str, ...] = ()) -> Iterator[str]:
    """The files of a folder and of those in it, as Go's filepath.Walk orders them, which CRI-O uses.

    It takes a link to a folder for a file. `also` are names that count as there.
    """
    for name in sorted({*node.list_dir(folder), *also}):
        path = f"{folder}/{name}"
        if node.is_dir(path) and not node.is_link(path):
            yield from _below(node, path)
        else:
            yield path


def contents(node: Files, path: str) -> bytes | None:
    """The bytes of a configuration file, None where there is none.

    Raises InputError for a folder, and for a file that is too large to be a configuration.
    """
    size = node.size(path)
    if size is not None and size > MAX_BYTES:
        raise InputError(
            f"{path} has {size} bytes; no configuration is that large",
            resolution="see what it is; nothing was changed",
        )
    if node.is_dir(path):
        raise InputError(
            f"{path} is a folder, not a file", resolution="remove or rename it; nothing was changed"
        )
    try:
        return node.read_bytes(path)
    except FileNotFoundError:
        return None


def replaced(
    node: Files, path: str, *, before: bytes | None, after: bytes | None, metadata: Metadata | None
) -> bool:
    """Replace a file of the node, as `Files.replace_bytes`, wherever it is mounted.

    A file that is mounted by itself (in the nodes of kind and k3d) is written in place: nothing can be
    renamed over a mount point. What somebody else writes between our look and that write is lost.
    """
    if after is None or not is_mounted(node, path):
        return node.replace_bytes(path, before=before, after=after, metadata=metadata)
    if contents(node, path) != before:
        return False
    node.write_in_place(path, after)
    return True


def is_mounted(node: Files, path: str) -> bool:
    """Whether a mount of the node covers this very file.

    In a pod it is PID 1's table that counts: the kernel lets us rename over that mount, and takes it away.
    """
    table = bytes_of(node, f"/proc/{'self' if node.root == '/' else '1'}/mountinfo") or b""
    mounts = parse_mountinfo(table.decode("utf-8", "surrogateescape"))
    return node.resolve(path) in (mount.target for mount in mounts)


def beside(node: Files, daemon: RuntimeDaemon, read: Contents) -> tuple[NodePath, ...]:
    """What else lies in the drop-in's folder, whatever it is, and is none of the files `read`."""
    folder = daemon.drop_in.rpartition("/")[0]
    paths = [NodePath(f"{folder}/{name}") for name in (node.list_dir(folder) if folder else ())]
    return tuple(path for path in paths if data_of(read, path) is None and path != daemon.drop_in)


def _with_imports(
    host: Host, daemon: RuntimeDaemon, *, to_write: bool, known: Contents
) -> dict[str, ConfigFile]:
    node = host.node
    found = {str(daemon.config): read_file(node, daemon.kind, daemon.config, known)}
    todo: list[str] = [daemon.config]
    while todo:
        path = todo.pop(0)
        for name in imported_files(node, daemon, path, found, every=to_write):
            if name not in found:
                found[name] = read_file(node, daemon.kind, name, known)
                if to_write:
                    _check_link(node, found[name])
                todo.append(name)
        if len(found) > MAX_FILES:
            raise Unsupported(
                f"{daemon.config} imports more than {MAX_FILES} files",
                resolution="look at its `imports`; nothing was changed",
            )
    if daemon.drop_in not in found:
        found[daemon.drop_in] = read_file(node, daemon.kind, daemon.drop_in, known)
    return found


def _check_link(node: Files, file: ConfigFile) -> None:
    """Raises InputError for a link to nothing."""
    if file.data is None and node.is_link(file.path):
        raise InputError(
            f"{file.path} is a link to nothing, and containerd does not start with it",
            resolution="remove it; nothing was changed",
        )


def changed_paths(files: Contents, disk: Contents) -> set[str]:
    """The paths whose bytes differ."""
    return {path for path in {*files, *disk} if data_of(files, path) != data_of(disk, path)}
