"""What is done about findings. Pure; the only place that can lead to a restart of the container runtime."""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_toolkit.watch.findings import Cure, Findings
from driverforge_toolkit.watch.window import Window, is_open, next_open

# all in seconds
NOTICE = 60.0  # between the announcement of a re-apply and the re-apply
# between two re-applies: two tools that overwrite each other shall not restart the runtime in turn
HOLD = 3600.0
HOLD_FAILED = 86400.0  # after one that failed, for as long as the same is wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPolicy:
    """What a watch may do. By default it reports, and writes CDI specs again, which needs no restart.

    `windows` are when a re-apply may happen; without one, at any time.
    """

    reapply: bool = False
    windows: tuple[Window, ...] = ()
    regenerate: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapplyHistory:
    """What was done before.

    Times are seconds since the epoch; `announced` is for the drift that is there now.
    """

    announced: float | None = None
    tried: float | None = None
    failed: tuple[str, ...] = ()  # what was wrong when a re-apply failed; () after one that did not


@dataclass(frozen=True, slots=True, kw_only=True)
class Regenerate:
    """Write the CDI spec again. No daemon is restarted for it."""

    why: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Say that the configuration will be applied again, not before `at`."""

    at: float
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reapply:
    """Apply the runtime's configuration again, which may restart it."""

    why: tuple[str, ...]


Action = Regenerate | Announce | Reapply


def decide(
    findings: Findings, policy: WatchPolicy, history: ReapplyHistory, now: float, *, driver: str
) -> tuple[Action, ...]:
    """What is to be done now. `driver` is the version that is there; without one, no spec can be written."""
    stale = tuple(line for finding in findings if finding.cure is Cure.CDI for line in finding.evidence)
    actions: list[Action] = [Regenerate(why=stale)] if stale and policy.regenerate and driver else []
    drift = tuple(
        f"{finding.what.value} {finding.subject}" for finding in findings if finding.cure is Cure.APPLY
    )
    if not drift or not policy.reapply:
        return tuple(actions)
    due = max(now, earliest_reapply(history, policy, now, evidence_of(findings)))
    if history.announced is None:
        actions.append(Announce(at=next_open(policy.windows, max(due, now + NOTICE)), why=drift))
    elif due <= now and now >= history.announced + NOTICE and is_open(policy.windows, now):
        actions.append(Reapply(why=drift))
    return tuple(actions)


def evidence_of(findings: Findings) -> tuple[str, ...]:
    """What is wrong with the configuration, in words.

    The words change when somebody changes the configuration.
    """
    return tuple(
        line
        for finding in findings
        if finding.cure is Cure.APPLY
        for line in (finding.what.value, finding.subject, *finding.evidence)
    )


def earliest_reapply(
    history: ReapplyHistory, policy: WatchPolicy, now: float, evidence: tuple[str, ...]
) -> float:
    """The earliest time of a re-apply, for what happened before. Windows are another matter."""
    if not policy.reapply or history.tried is None:
        return now
    return history.tried + (HOLD_FAILED if history.failed and history.failed == evidence else HOLD)
