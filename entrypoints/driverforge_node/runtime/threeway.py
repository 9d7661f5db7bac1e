"""Undoing our change of a TOML file that others may have changed since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from driverforge_node.runtime import nvidia
from driverforge_node.runtime.document import REMOVED, Change, Path, edit, leaves, parse, same
from driverforge_node.runtime.model import Undone

LISTS = (("imports",),)  # lists of which others may have changed other items


def undo(path: str, *, original: bytes | None, written: bytes | None, current: bytes | None) -> Undone:
    """`current` without the difference between `original` and `written`; the exact original where nobody changed the file since."""
    if current == written:
        return Undone(data=original)
    if current is None or written is None:
        return Undone(data=current)  # somebody removed the file, or made one where we removed it: nothing of ours is left in it
    base, ours, now = (parse(data or b"", path) for data in (original, written, current))
    old, new, present = dict(leaves(base)), dict(leaves(ours)), dict(leaves(now))
    changes, kept = [], []
    for key in {**old, **new}:
        was, wrote, there = (table.get(key, REMOVED) for table in (old, new, present))
        if same(was, wrote) or (there is REMOVED and wrote is not REMOVED):
            continue
        if same(there, wrote):
            changes.append(Change(path=key, value=was))
        elif key in LISTS and isinstance(there, list):
            changes.append(Change(path=key, value=_without_items(was, wrote, there)))
        else:
            kept.append(key)
    changes = _without_needed(changes, present, set(kept))
    data = edit(current, changes, path, keep=base)
    return Undone(data=None if original is None and not data.strip() else data, kept=tuple(sorted(kept)))


def _without_items(was: object, wrote: object, there: list[object]) -> object:
    """A list without the items that we added; REMOVED where nothing is left that was not there before."""
    before = was if isinstance(was, list) else []
    added = [item for item in wrote if item not in before] if isinstance(wrote, list) else []
    left = [item for item in there if item not in added]
    return left if left or was is not REMOVED else REMOVED


def _runtime(path: Path) -> tuple[Path, str]:
    """The table of runtimes that a key belongs to and the runtime's name, ((), '') for other keys."""
    if "runtimes" in path[:-1]:
        place = path.index("runtimes") + 1
        if len(path) > place + 1 or path[-1] != "runtimes":
            return path[:place], path[place]
    return (), ""


def _without_needed(changes: Sequence[Change], present: Mapping[Path, object], changed: set[Path]) -> list[Change]:
    """Leave what the rest of the file depends on by now.

    A handler that somebody changed stays whole. What we only wrote down of the daemon's own settings (runc, the rest of a section) stays
    beside any other setting of the section, which replaces the daemon's as a whole. `version` stays as long as there is anything it is the
    version of.
    """
    whole = {_runtime(path) for path in changed} - {((), "")}
    changes = [change for change in changes if _runtime(change.path) not in whole]
    handlers = {_runtime(path) for path, value in present.items() if _is_handler(path, value)}
    removed = {change.path for change in changes if change.value is REMOVED}
    if any(path[0] != "version" and path[0] != "imports" for path in present if path not in removed):
        changes = [c for c in changes if c.value is not REMOVED or _runtime(c.path) in handlers or _may_go(c.path)]
        removed = {change.path for change in changes if change.value is REMOVED}
    if any(path not in removed for path in present if path != ("version",)):
        changes = [change for change in changes if change.path != ("version",)]
    return changes


def _is_handler(path: Path, value: object) -> bool:
    place, name = _runtime(path)
    program = value if path[-1] in ("BinaryName", "runtime_path") and isinstance(value, str) else ""
    return bool(place) and nvidia.is_nvidia(name, program)


def _may_go(path: Path) -> bool:
    return path[-1] in ("imports", "version", "default_runtime_name", "default_runtime", "enable_cdi")
