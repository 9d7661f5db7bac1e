"""What a plan is made of: steps, and the three ways a look at the node can end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from driverforge_core.errors import DriverforgeError
from driverforge_host.ports import Host


class Step(Protocol):
    """A change of the node: a frozen value. It may be applied again after a crash at any point."""

    def describe(self) -> str:
        """What the step does, for people: 'load the module nvidia'."""

    def apply(self, host: Host) -> None:
        """Make the change.

        Raises Skipped where it fails and the node can do without it, any other DriverforgeError where the
        node cannot.
        """

    def problem(self, host: Host) -> str:
        """Look at the node after `apply`. Returns what shows that the step had no effect, '' where it had."""


class Skipped(DriverforgeError):
    """A step failed that the node can do without. `brief` is the warning that people get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The stretch that can be decided now."""

    steps: tuple[Step, ...]
    # what has to be seen before the rest can be decided
    unknown: tuple[str, ...] = ()
    # why it goes this way
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The node is as wanted."""

    # what was left on purpose: a driver in use
    left: tuple[str, ...] = ()
    # why it went the way it did
    reasons: tuple[str, ...] = ()
    # what somebody may miss
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """There is no way on from here."""

    error: DriverforgeError


Outcome = Steps | Done | Blocked
