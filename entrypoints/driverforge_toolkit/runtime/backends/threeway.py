"""Undoing our change of a file that others may have changed since (a three-way merge)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from driverforge_toolkit.runtime.formats.configfile import ConfigFile
from driverforge_toolkit.runtime.formats.values import REMOVED, Change, KeyPath, leaves, same
from driverforge_toolkit.runtime.model import Undone

LISTS = (("imports",),)  # lists of which others may have changed other items
DEFAULTS = ("default_runtime_name", "default_runtime", "default-runtime")

# the changes, the original's leaves, today's leaves -> the changes that may be made
Needed = Callable[[Sequence[Change], Mapping[KeyPath, object], Mapping[KeyPath, object]], list[Change]]


def undo(current: ConfigFile, needed: Needed, *, original: bytes | None, written: bytes | None) -> Undone:
    """`current` without the difference between `original` and `written`.

    Where nobody changed the file since, this is the exact original. `needed` leaves out the changes that
    would break what others wrote.
    """
    if current.data == written:
        return Undone(file=current.with_data(original))
    if current.data is None or written is None or current.data == original:
        # somebody removed the file, or put it back: nothing of ours is left in it
        return Undone(file=current)
    base, ours = (current.with_data(data).values for data in (original, written))
    old, new, present = dict(leaves(base)), dict(leaves(ours)), dict(leaves(current.values))
    changes, kept = [], set()
    for key in {**old, **new}:
        was, wrote, there = (table.get(key, REMOVED) for table in (old, new, present))
        if same(was, wrote) or (there is REMOVED and wrote is not REMOVED):
            continue
        if same(there, wrote):
            changes.append(Change(path=key, value=was))
        elif key in LISTS and isinstance(there, list):
            changes.append(Change(path=key, value=_without_items(was, wrote, there)))
        else:
            kept.add(key)
    left = current.edited(needed(_whole(changes, old, present, kept), old, present), keep=base)
    # a file that we made goes away, unless others left something in it, be it a comment
    empty = original is None and b"#" not in (left.data or b"") and not left.values
    return Undone(file=left.with_data(None) if empty else left, kept=tuple(sorted(kept)))


def _without_items(was: object, wrote: object, there: list[object]) -> object:
    """A list without the items that we added.

    REMOVED where nothing is left, and the list was not there before.
    """
    before = was if isinstance(was, list) else []
    added = [item for item in wrote if item not in before] if isinstance(wrote, list) else []
    left = [item for item in there if item not in added]
    return left if left or was is not REMOVED else REMOVED


def runtime_of(path: KeyPath) -> str:
    """The runtime that a key belongs to, '' for other keys.

    All three kinds of daemon have a table `runtimes`.
    """
    place = path.index("runtimes") + 1 if "runtimes" in path else len(path)
    return path[place] if len(path) > place else ""


def _whole(
    changes: Sequence[Change],
    old: Mapping[KeyPath, object],
    present: Mapping[KeyPath, object],
    changed: set[KeyPath],
) -> list[Change]:
    """Keep a runtime whole that somebody changed, or that others made the default.

    The daemon refuses half a runtime, and a default that it does not know.
    """
    stay = {runtime_of(path) for path in changed}
    restored = {change.path for change in changes}
    defaults = {
        path: value for path, value in present.items() if path[-1] in DEFAULTS and path not in restored
    }
    stay |= {str(value) for path, value in defaults.items() if not same(value, old.get(path, REMOVED))}
    return [
        change
        for change in changes
        if change.value is not REMOVED or runtime_of(change.path) not in stay - {""}
    ]


def all_of_them(
    changes: Sequence[Change], _old: Mapping[KeyPath, object], _present: Mapping[KeyPath, object]
) -> list[Change]:
    """`Needed` for a file in which nothing depends on what we wrote."""
    return list(changes)
