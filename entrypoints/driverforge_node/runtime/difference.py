"""Comparing configurations by what they mean: as the daemon prints them, and as files hold them."""

from __future__ import annotations

from collections.abc import Mapping

from driverforge_node.runtime.document import REMOVED, Path, dotted, leaves, same

# the list of imports names the files that were read; the version is the daemon's own
BOOKKEEPING = (("imports",), ("version",))


def without_zeros(table: object) -> dict[str, object]:
    """A table without keys that are empty, 0 or false: containerd and CRI-O print all of a structure's fields."""
    if not isinstance(table, Mapping):
        return {}
    pairs = {
        key: without_zeros(value) if isinstance(value, Mapping) else value for key, value in table.items()
    }
    return {key: value for key, value in pairs.items() if value}


def differing(before: Mapping[str, object], after: Mapping[str, object]) -> dict[Path, tuple[object, object]]:
    """Keys whose value the daemon sees differently, as (before, after); REMOVED where there is none. Zeros count as not there."""
    old, new = dict(leaves(without_zeros(before))), dict(leaves(without_zeros(after)))
    paths = [path for path in {**old, **new} if not same(old.get(path, REMOVED), new.get(path, REMOVED))]
    return {
        path: (old.get(path, REMOVED), new.get(path, REMOVED)) for path in paths if path not in BOOKKEEPING
    }


def describe(path: Path, before: object, after: object) -> str:
    """A difference as a person reads it: `oom_score: 0 -> (not set)`."""
    shown = ["(not set)" if value is REMOVED else repr(value) for value in (before, after)]
    return f"{dotted(path)}: {shown[0]} -> {shown[1]}"
