"""The loop: look, apply the stretch that can be decided, prove each of its steps, look again.

It ends where nothing is left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from driverforge_core import log
from driverforge_core.errors import CommandFailed, DriverforgeError, TemporaryFailure
from driverforge_host.ports import Host
from driverforge_host.reconcile.outcomes import Blocked, Done, Outcome, Skipped, Step, Steps

# The longest way that we know has seven: another driver that only our daemons use, compile, load, publish.
MAX_STRETCHES = 12
# Somebody may take back what we did, as a start of udev does with device files. Once is chance.
MAX_TIMES = 2

# called before each step, with its number from 1; raises to keep the step from running
Gate = Callable[[int, Step], None]
# asks a person about a step; False means no
Ask = Callable[[int, Step], bool]
# observes and plans; gets the steps that were skipped, which it must not plan again
Look = Callable[[tuple[Step, ...]], Outcome]


class Stopped(TemporaryFailure):
    """A stop signal came before the node was as wanted."""


class Declined(TemporaryFailure):
    """A person said no to a step."""


def no_gate(_number: int, _step: Step) -> None:
    """Let every step run."""


def gate_for(host: Host, *, ask: Ask | None = None) -> Gate:
    """A gate that ends the run at a stop signal, and asks a person before each step where `ask` is given.

    The gate raises Stopped and Declined.
    """

    def gate(number: int, step: Step) -> None:
        heed_signal(step)
        if ask is None:
            return
        agreed = ask(number, step)
        # The signal may have come while the question was open.
        heed_signal(step)
        if not agreed:
            raise Declined(
                f"not confirmed: {step.describe()}",
                resolution="start again and say yes, or leave out --confirm",
            )

    def heed_signal(step: Step) -> None:
        if signal := host.clock.wait(0):
            raise Stopped(f"stopped by {signal} before: {step.describe()}")

    return gate


def reconcile(host: Host, look: Look, *, gate: Gate = no_gate) -> Done:
    """Take steps until `look` says Done.

    Raises the error of a Blocked outcome, of a step, or of the gate. Raises CommandFailed where a step has no
    effect or loses it twice, or where the node is not as wanted after MAX_STRETCHES rounds.
    """
    applied: list[Step] = []
    reasons: list[str] = []
    skipped: dict[Step, str] = {}
    for _ in range(MAX_STRETCHES):
        outcome = look(tuple(skipped))
        if isinstance(outcome, Done):
            return replace(outcome, reasons=tuple(reasons), warnings=(*skipped.values(), *outcome.warnings))
        if isinstance(outcome, Blocked):
            raise outcome.error
        if outcome.reason and outcome.reason not in reasons:
            reasons.append(outcome.reason)
            log.info("plan", reason=outcome.reason)
        skipped |= _apply_stretch(host, outcome, applied, gate)
    raise CommandFailed(
        f"the node is not as wanted after {MAX_STRETCHES} rounds",
        details=[step.describe() for step in applied],
        resolution="something else changes this node at the same time: find it, then start again",
    )


def _apply_stretch(host: Host, stretch: Steps, applied: list[Step], gate: Gate) -> dict[Step, str]:
    """Apply and prove the steps of one stretch. Returns those that were skipped, each with its warning."""
    skipped = {}
    for step in stretch.steps:
        if applied.count(step) >= MAX_TIMES:
            raise CommandFailed(
                f"needed again after it was done: {step.describe()}",
                details=[f"it had its effect {MAX_TIMES} times, and has lost it each time"],
                resolution="see whether something else changes this node at the same time",
            )
        if step in applied:
            log.warning("done again: something else took its effect back", step=step.describe())
        gate(len(applied) + 1, step)
        try:
            with log.step(step.describe()):
                step.apply(host)
        except Skipped as why:
            skipped[step] = why.brief
            log.warning(why.brief)
        else:
            _prove(host, step)
        applied.append(step)
    return skipped


def _prove(host: Host, step: Step) -> None:
    if problem := step.problem(host):
        raise CommandFailed(
            f"done, but without effect: {step.describe()}",
            details=[problem],
            resolution="see whether something else changes this node at the same time",
        )


def undo(host: Host, steps: Iterable[Step]) -> tuple[str, ...]:
    """Apply every step, also after one has failed. Returns a line for each one that failed."""
    return tuple(line for step in steps if (line := _attempt(host, step)))


def _attempt(host: Host, step: Step) -> str:
    try:
        step.apply(host)
    except DriverforgeError as error:
        return f"could not {step.describe()}: {error.brief}"
    return ""
