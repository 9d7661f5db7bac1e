"""Settings that containerd does not see any more because our drop-in has a copy of the CRI section from before. Pure.

One before 2.1 takes the whole section of the last file that has any of it; an edit of the root file's section comes to nothing. A later
one merges key by key: an edit of what the copy has, too, comes to nothing, until an apply after the upgrade makes the drop-in small.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from driverforge_node.runtime.containerd import DEFAULT, ENABLE_CDI, MERGES_KEYS, RUNTIMES, cri
from driverforge_node.runtime.difference import describe
from driverforge_node.runtime.document import REMOVED, Path, leaves, lookup, parse, same
from driverforge_node.runtime.model import Daemon


def shadowed(daemon: Daemon, files: Mapping[str, bytes | None], ours: Collection[str]) -> tuple[str, ...]:
    """A line for each setting; `files` are in the daemon's order, `ours` our handlers' names. Raises InputError for a broken file."""
    if daemon.kind != "containerd" or not daemon.version or not files.get(daemon.drop_in):
        return ()
    documents = {path: parse(data or b"", path) for path, data in files.items()}
    copy = documents.pop(daemon.drop_in, {})
    having = [path for path, document in documents.items() if lookup(document, cri(document)) is not REMOVED]
    if not having or lookup(copy, cri(copy)) is REMOVED:
        return ()
    section = _section(documents[having[-1]])
    merges = daemon.version >= MERGES_KEYS
    hidden = [
        describe(path, value, lookup(_section(copy), path))
        for path, value in leaves(section)
        if not _ours(path, ours) and not same(value, lookup(_section(copy), path))
        if not (merges and lookup(_section(copy), path) is REMOVED)
    ]
    return tuple(f"{having[-1]}: {line} in {daemon.drop_in}, which counts" for line in hidden)


def _section(document: Mapping[str, object]) -> Mapping[str, object]:
    found = lookup(document, cri(document))
    return found if isinstance(found, Mapping) else {}


def _ours(path: Path, ours: Collection[str]) -> bool:
    return path in (DEFAULT, ENABLE_CDI) or (path[:2] == RUNTIMES and path[2:3] != () and path[2] in ours)
