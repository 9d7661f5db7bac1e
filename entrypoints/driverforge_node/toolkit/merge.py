"""A new config.toml over the one that is there: what a person wrote stays, with its comments."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from driverforge_node.runtime.document import REMOVED, Change, Path, edit, leaves, lookup, parse
from driverforge_node.toolkit import config


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The file to write, and keys that a person changed and that stay as they are."""

    data: bytes
    kept: tuple[Path, ...] = ()


def merged(
    current: bytes | None,
    last: bytes | None,
    wanted: config.ToolkitConfig,
    owned: Collection[Path],
    name: str,
) -> Merged:
    """`last` is what we wrote last time (None: we did not), `owned` are the keys that the settings decide.

    Other keys of upstream's follow our own change of mind only; keys that are not upstream's, and comments, always stay.
    Raises InputError for a broken file, Unsupported for one that cannot be edited.
    """
    fresh = config.render(wanted)
    if current is None or current == last:
        return Merged(data=fresh)
    now, before, then = parse(current, name), parse(last or b"", name), parse(fresh, name)
    changes, kept = [], []
    for path, value in leaves(then):
        if lookup(now, path) == value:
            continue
        if path in owned or lookup(before, path) != value:
            changes.append(Change(path=path, value=value))
        else:
            kept.append(path)
    for path, value in leaves(before):
        if lookup(then, path) is REMOVED and lookup(now, path) == value:
            changes.append(Change(path=path, value=REMOVED))
    data = edit(current, changes, name)
    config.read(parse(data, name), name)
    return Merged(data=data, kept=tuple(kept))
