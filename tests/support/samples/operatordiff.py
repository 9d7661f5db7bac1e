"""How two Kubernetes objects differ, as paths; the order of what has names means nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Differences = set[str]
_MOUNT = ("name", "mountPath")


def differences(theirs: Any, ours: Any, path: str = "") -> Differences:
    """Paths of what is in one and not in the other, or differs: 'spec.volumes[cgroup]'."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return _in_mappings(theirs, ours, path)
    if isinstance(theirs, list) and isinstance(ours, list) and _is_named(theirs) and _is_named(ours):
        return _in_mappings(_named(theirs), _named(ours), path, "{}[{}]")
    return set() if theirs == ours else {path}


def _in_mappings(
    theirs: Mapping[str, Any], ours: Mapping[str, Any], path: str, joined: str = "{}.{}"
) -> Differences:
    found: Differences = set()
    for key in theirs.keys() | ours.keys():
        where = joined.format(path, key).lstrip(".")
        # an empty value is as good as none
        found |= differences(theirs.get(key) or None, ours.get(key) or None, where)
    return found


def _is_named(values: list[Any]) -> bool:
    return all(isinstance(one, dict) and "name" in one for one in values)


def _named(values: list[Any]) -> dict[str, Any]:
    found = {" ".join(one[key] for key in _MOUNT if key in one): one for one in values}
    assert len(found) == len(values), f"two of one name: {values}"
    return found
