"""When a server said what a run read, as JSON."""

from __future__ import annotations

from typing import Literal

# pydantic, which makes the schemas, wants this one before Python 3.12
from typing_extensions import TypedDict

State = Literal["fresh", "stale"]


class ReadState(TypedDict):
    """`fresh` where a server was asked in this run, `stale` where the cache answered in its place.

    `time` is when the server last said it, UTC, ISO 8601; '' where an earlier version filled the cache.
    """

    state: State
    time: str
