"""How `lock` and `watch` tell what was read now, and what is out of the cache."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driverforge_build.documents.reads import ReadState, State
    from driverforge_build.ports import LastRead


def of_cache(reads: Iterable[LastRead]) -> str:
    """'what the cache holds, read 2026-11-20T12:00:00Z', of the oldest; '' where nothing comes from there."""
    stale = [read.time for read in reads if not read.fresh]
    if not stale:
        return ""
    oldest = min(stale)
    return f"what the cache holds{oldest and f', read {oldest}'}"


def read_state(read: LastRead) -> ReadState:
    return {"state": state_of_all([read]), "time": read.time}


def state_of_all(reads: Iterable[LastRead]) -> State:
    """`stale` where one of them is."""
    return "fresh" if all(read.fresh for read in reads) else "stale"
