"""containerd's `imports`: which files a document brings in, and in which order they count.

Facts: cmd/containerd/server/config/config.go. A path is relative to the file that has it; one with a `*` is a glob whose star does not
cross a slash; files are read breadth first, each once, and a later one wins.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from fnmatch import fnmatchcase

from driverforge_core.errors import InputError
from driverforge_node.runtime.document import parse

KEY = ("imports",)


def declared(config: Mapping[str, object], name: str) -> list[str]:
    """The `imports` of a document, [] where it has none. Raises InputError where the value is no list of strings."""
    value = config.get("imports", [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InputError(
            f"{name}: `imports` is no list of file names",
            details=[
                f'{name}: imports = {value!r}, and containerd takes only imports = ["/etc/containerd/conf.d/*.toml"]'
            ],
            resolution="repair the file; nothing was changed",
        )
    return list(value)


def pattern(drop_in: str) -> str:
    """The import that covers a drop-in and its neighbours, as NVIDIA's toolkit writes it."""
    return f"{posixpath.dirname(drop_in)}/*.toml"


def matches(path: str, declared_in: str, imported: str) -> bool:
    """Whether `imported`, as `declared_in` has it, brings in the file `path`."""
    absolute = posixpath.normpath(posixpath.join(posixpath.dirname(declared_in), imported))
    if "*" not in absolute:
        return absolute == path
    wanted, parts = absolute.split("/"), path.split("/")
    return len(wanted) == len(parts) and all(map(fnmatchcase, parts, wanted))


def read(root: str, files: Mapping[str, bytes | None]) -> dict[str, dict[str, object]]:
    """The documents that the daemon reads, in its order; a file of `files` that does not exist yet has its future place.

    Raises InputError for a broken file, and as `declared`.
    """
    pending, found = [root], {}
    while pending:
        path = pending.pop(0)
        if path in found:
            continue
        found[path] = parse(files.get(path) or b"", path)
        for item in declared(found[path], path):
            pending += sorted(other for other in files if matches(other, path, item))
    return found


def including(config: Mapping[str, object], drop_in: str, name: str) -> list[str]:
    """The `imports` of a document with the one that covers the drop-in. Raises as `declared`."""
    existing = declared(config, name)
    return (
        existing if any(matches(drop_in, name, item) for item in existing) else [*existing, pattern(drop_in)]
    )
