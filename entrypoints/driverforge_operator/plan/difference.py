"""Whether an object is already what is wanted."""

from __future__ import annotations

from typing import Any


def covers(found: Any, wanted: Any) -> bool:
    """Whether everything that is wanted is there, whatever the API server and others added.

    An object that somebody else changed in our fields is not covered, though it is our own. A list is
    compared entry by entry, as server-side apply keeps our order; an empty value is as good as none, for the
    server stores none.
    """
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            covers(found[key], value) if key in found else value in ({}, [], "", None)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(covers(one, other) for one, other in zip(found, wanted, strict=True))
        )
    return bool(found == wanted)
