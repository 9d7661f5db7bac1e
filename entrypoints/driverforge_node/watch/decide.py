"""What is done about findings. Pure; the only place that can lead to a restart of the container runtime."""

from __future__ import annotations

from dataclasses import dataclass

from driverforge_node.watch.findings import Findings
from driverforge_node.watch.window import Window, is_open, next_open

NOTICE = 60.0  # seconds between the announcement of a re-apply and the re-apply
HOLD = (
    3600.0  # no second one before: two tools that overwrite each other shall not restart the runtime in turn
)
HOLD_FAILED = 86400.0  # nor sooner than this after one that failed, while the same is wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Report only, unless said otherwise. `windows`: when a re-apply may happen; none: at any time. CDI specs need no restart."""

    reapply: bool = False
    windows: tuple[Window, ...] = ()
    regenerate: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What was done before; times are seconds since the epoch. `announced` is for the drift that is there now."""

    announced: float | None = None
    tried: float | None = None
    failed: tuple[str, ...] = ()  # what was wrong when a re-apply failed; () after one that did not


@dataclass(frozen=True, slots=True, kw_only=True)
class Regenerate:
    """Write the CDI spec anew. No daemon is restarted for it."""

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


def decide(findings: Findings, policy: Policy, past: Past, now: float, *, driver: str) -> tuple[Action, ...]:
    """`driver` is the version that is there, '' for none: without one no spec can be written."""
    stale = tuple(line for finding in findings if finding.cure == "cdi" for line in finding.evidence)
    actions: list[Action] = [Regenerate(why=stale)] if stale and policy.regenerate and driver else []
    drift = tuple(f"{finding.what} {finding.subject}" for finding in findings if finding.cure == "apply")
    if not drift or not policy.reapply:
        return tuple(actions)
    due = max(now, earliest(past, policy, now, evidence_of(findings)))
    if past.announced is None:
        actions.append(Announce(at=next_open(policy.windows, max(due, now + NOTICE)), why=drift))
    elif due <= now and now >= past.announced + NOTICE and is_open(policy.windows, now):
        actions.append(Reapply(why=drift))
    return tuple(actions)


def evidence_of(findings: Findings) -> tuple[str, ...]:
    """What is wrong with the configuration, in words: others when somebody changes it."""
    return tuple(
        line
        for finding in findings
        if finding.cure == "apply"
        for line in (finding.what, finding.subject, *finding.evidence)
    )


def earliest(past: Past, policy: Policy, now: float, evidence: tuple[str, ...]) -> float:
    """Not before this, for what happened before; the window is another matter."""
    if not policy.reapply or past.tried is None:
        return now
    return past.tried + (HOLD_FAILED if past.failed and past.failed == evidence else HOLD)
