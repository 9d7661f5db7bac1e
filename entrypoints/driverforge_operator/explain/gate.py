"""A gate of a node, and what one look at it gives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from driverforge_operator.explain.blocked import Blocked
from driverforge_operator.explain.finding import Finding


class GateState(Enum):
    """What is said of a gate."""

    OPEN = "open"
    CLOSED = "CLOSED"
    WAITS = "waits"
    """For one above it, or, by its own words, for one below."""
    OFF = "off"
    """Nobody wants what is behind it, or somebody else brings it."""
    UNREAD = "unread"
    """What would say is not in the dump."""


OPEN, CLOSED, WAITS, OFF, UNREAD = GateState


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One row of the table. `finding` says more where it is closed."""

    name: str
    state: GateState
    told: str
    finding: Finding | None = None

    @property
    def culprit(self) -> Blocked | None:
        """The container whose log says why it is closed."""
        return self.finding.blocked if self.finding else None


class Told(NamedTuple):
    """What a gate says that no finding closes."""

    state: GateState
    told: str
    finding: Finding | None = None


Seen = Told | Finding
"""What one look at a gate gives."""
