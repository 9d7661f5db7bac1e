"""Settings of containerd that our drop-in hides. Pure.

Our drop-in has a copy of the CRI section of the root file, as that was when we wrote the drop-in. A
containerd before 2.1 takes the whole section from the last file that has one, so a later edit of the root
file has no effect. From 2.1 on containerd merges the files key by key. There, only an edit of what the copy
has, too, is without effect, until an apply makes the drop-in small.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from driverforge_toolkit.runtime.backends.containerd_config import (
    DEFAULT,
    ENABLE_CDI,
    MERGES_KEYS,
    RUNTIMES,
    cri_sections,
    section_of,
)
from driverforge_toolkit.runtime.formats.configfile import Contents, data_of
from driverforge_toolkit.runtime.formats.values import REMOVED, KeyPath, describe, leaves, lookup, same
from driverforge_toolkit.runtime.model import RuntimeDaemon

Section = Mapping[str, object]


def shadowed(daemon: RuntimeDaemon, files: Contents, ours: Collection[str]) -> tuple[str, ...]:
    """A line for each setting of another file that our drop-in hides.

    `files` are the daemon's in the order in which it reads them, `ours` the names of our handlers. Raises
    InputError for a file that cannot be parsed.
    """
    if daemon.kind != "containerd" or not daemon.version or not data_of(files, daemon.drop_in):
        return ()
    sections = {path: _section(file.values, daemon) for path, file in files.items()}
    copy = sections.pop(daemon.drop_in)
    having = [path for path, section in sections.items() if section is not None]
    if copy is None or not having:
        return ()
    # without us, the section of the last file would count
    hidden_file = having[-1]
    section = sections[hidden_file] or {}
    lines = _differences(section, copy, ours, merges=daemon.version >= MERGES_KEYS)
    return tuple(f"{hidden_file}: {line} in {daemon.drop_in}, which counts" for line in lines)


def _differences(section: Section, copy: Section, ours: Collection[str], *, merges: bool) -> Iterator[str]:
    """Settings of the section that are not in force: the copy has another value, or none."""
    for path, value in leaves(section):
        counts = lookup(copy, path)
        # where keys are merged, a setting that the copy does not have is in force
        if _is_ours(path, ours) or same(value, counts) or (merges and counts is REMOVED):
            continue
        yield describe(path, value, counts)


def _section(document: Section, daemon: RuntimeDaemon) -> Section | None:
    """What counts of the file's CRI sections; None where the file has none."""
    places = cri_sections(document, daemon.version)
    if all(lookup(document, path) is REMOVED for path in places):
        return None
    return section_of(document, daemon.version)


def _is_ours(path: KeyPath, ours: Collection[str]) -> bool:
    """Whether we set this ourselves: the default runtime, CDI, and the tables of our handlers."""
    return path in (DEFAULT, ENABLE_CDI) or (path[:2] == RUNTIMES and path[2:3] != () and path[2] in ours)
