"""The files that a daemon reads: its root file, what that imports, its drop-in folder. In the order in which it reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from driverforge_core.errors import InputError, Unsupported
from driverforge_node.host.ports import Files, Host
from driverforge_node.runtime.document import parse
from driverforge_node.runtime.imports import declared
from driverforge_node.runtime.model import Daemon

IMPORTS = "imports"
MAX_BYTES = 8 << 20  # a larger file is no configuration; containerd's own default is 12 kB
MAX_FILES = 1000

Contents = dict[str, bytes | None]


def read(host: Host, daemon: Daemon) -> Contents:
    """All files, and None for the root file and our drop-in where these are not there. Raises InputError for a broken or huge one."""
    if daemon.kind == "containerd":
        return _with_imports(host, daemon)
    found: Contents = {daemon.config: contents(host.node, daemon.config)}
    if daemon.kind == "crio":
        folder = daemon.drop_in.rpartition("/")[0]
        names = sorted({*host.node.list_dir(folder), daemon.drop_in.rpartition("/")[2]})
        found |= {
            f"{folder}/{name}": contents(host.node, f"{folder}/{name}")
            for name in names
            if not host.node.is_dir(f"{folder}/{name}")
        }
    return found


def contents(node: Files, path: str) -> bytes | None:
    """The bytes of a configuration file, None where there is none. Raises InputError for a folder or a huge file."""
    size = node.size(path)
    if size is not None and size > MAX_BYTES:
        raise InputError(
            f"{path} has {size} bytes, which no configuration has",
            resolution="look at what it is; nothing was changed",
        )
    if node.is_dir(path):
        raise InputError(
            f"{path} is a folder, not a file", resolution="remove or rename it; nothing was changed"
        )
    try:
        return node.read_bytes(path)
    except FileNotFoundError:
        return None


def _with_imports(host: Host, daemon: Daemon) -> Contents:
    found: Contents = {daemon.config: contents(host.node, daemon.config)}
    cwd = working_folder(host, daemon)
    todo = [daemon.config]
    while todo:
        path = todo.pop(0)
        for name in imported(host.node, daemon, path, found, cwd):
            if name not in found:
                found[name] = contents(host.node, name)
                todo.append(name)
        if len(found) > MAX_FILES:
            raise Unsupported(
                f"{daemon.config} imports more than {MAX_FILES} files",
                resolution="look at its `imports`; nothing was changed",
            )
    found.setdefault(daemon.drop_in, contents(host.node, daemon.drop_in))
    return found


def working_folder(host: Host, daemon: Daemon) -> str:
    """containerd 1.6 takes relative patterns from its working folder, later ones from the file's (containerd#7347)."""
    return host.node.resolve(f"/proc/{daemon.pid}/cwd") if daemon.pid else "/"


def patterns(path: str, data: bytes | None) -> list[str]:
    """The `imports` of a containerd file. Raises InputError where they are no list of texts.

    A file without them imports nothing, also with 2.2 and later: their built-in defaults name /etc/containerd/conf.d (containerd#12323),
    but the daemon follows the imports of files that it loads, and not those (LoadConfig in cmd/containerd/server/config/config.go).
    """
    return declared(parse(data or b"", path), path)


def imported(
    node: Files, daemon: Daemon, path: str, files: Mapping[str, bytes | None], cwd: str
) -> list[str]:
    """The files that one file imports, in order: those of the node, as `files` would change them."""
    found: list[str] = []
    for pattern in patterns(path, files.get(path)):
        globbed = "*" in pattern
        folder = cwd if globbed and daemon.version and daemon.version < (1, 7) else path.rpartition("/")[0]
        whole = pattern if pattern.startswith("/") else f"{folder.rstrip('/')}/{pattern}"
        found += matching(node, normal(whole), files) if globbed else [normal(whole)]
    return found


def normal(path: str) -> str:
    """Without '//', '.' and '..', as Go's filepath.Join writes it."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def matching(node: Files, pattern: str, files: Mapping[str, bytes | None]) -> list[str]:
    """Paths that a pattern matches (Go's filepath.Glob: * does not match '/'), sorted; `files` adds and takes away (None)."""
    found = {path for path in _on_disk(node, pattern) if files.get(path, b"") is not None}
    expression = _compiled("/".join(_expression(part) for part in pattern.split("/")), pattern)
    found |= {path for path, data in files.items() if data is not None and expression.fullmatch(path)}
    return sorted(found)


def _on_disk(node: Files, pattern: str) -> set[str]:
    paths = [""]
    for part in pattern.strip("/").split("/"):
        if re.search(r"[*?\[]", part):
            expression = _compiled(_expression(part), pattern)
            paths = [
                f"{path}/{name}"
                for path in paths
                for name in node.list_dir(path or "/")
                if expression.fullmatch(name)
            ]
        else:
            paths = [f"{path}/{part}" for path in paths]
    return {path for path in paths if node.exists(path) and not node.is_dir(path)}


def _compiled(expression: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as error:
        raise InputError(
            f"the import {pattern!r} is no pattern",
            details=[str(error)],
            resolution="correct it; nothing was changed",
        ) from error


def _expression(part: str) -> str:
    """A pattern's component as a regular expression."""
    out = ""
    for piece in re.findall(r"\[[^\]]+\]|\\.|.", part):
        if piece == "*":
            out += "[^/]*"
        elif piece == "?":
            out += "[^/]"
        elif len(piece) > 2 and piece[0] == "[":
            out += piece
        else:
            out += re.escape(piece.removeprefix("\\") if len(piece) == 2 else piece)
    return out


def changed(files: Mapping[str, bytes | None], disk: Mapping[str, bytes | None]) -> set[str]:
    """Paths whose bytes differ."""
    return {path for path in {*files, *disk} if files.get(path) != disk.get(path)}
