"""Observe, plan, apply a stretch, and observe again, until the node is as wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from driverforge_core.errors import CommandFailed, DriverforgeError, TemporaryFailure
from driverforge_node import log
from driverforge_node.driver import notices, paths
from driverforge_node.driver import steps as s
from driverforge_node.driver.facts import Facts, Wanted
from driverforge_node.driver.observe import observe
from driverforge_node.driver.plan import Blocked, Done, Steps, next_steps, restore_firmware
from driverforge_node.driver.use import removal_order
from driverforge_node.host.ports import Host

MAX_STRETCHES = (
    12  # the longest way (another driver in use by our daemons only, compile, load, publish) has seven
)

Gate = Callable[[int, s.Step], None]


class Stopped(TemporaryFailure):
    """A stop signal came before the node was as wanted."""


class Declined(TemporaryFailure):
    """A person said no to a step."""


def no_gate(_number: int, _step: s.Step) -> None:
    """Every step may run."""


def drive(host: Host, wanted: Wanted, *, gate: Gate = no_gate) -> Done:
    """Bring the node to `wanted`. `gate` is called before each step, with its number from 1, and may raise to keep it from running."""
    applied: list[s.Step] = []
    reasons: list[str] = []
    refused: list[str] = []
    for _ in range(MAX_STRETCHES):
        # what was refused once is not tried again in this run, nor missed
        wanted = replace(wanted, peermem=False) if refused else wanted
        facts = observe(host, wanted)
        plan = next_steps(facts, wanted)
        if isinstance(plan, Done):
            return replace(plan, reasons=tuple(reasons), warnings=(*refused, *_notice(facts, wanted)))
        if isinstance(plan, Blocked):
            raise plan.error
        if plan.reason and plan.reason not in reasons:
            reasons.append(plan.reason)
            log.info("plan", reason=plan.reason)
        refused += _apply(host, plan, applied, gate)
    raise CommandFailed(
        f"the node is not as wanted after {MAX_STRETCHES} rounds",
        details=[step.describe() for step in applied],
        resolution="something else changes the driver of this node at the same time: find it, then start again",
    )


def _notice(facts: Facts, wanted: Wanted) -> tuple[str, ...]:
    if text := notices.left_out(facts, wanted):
        log.info(text)
    found = notices.warnings(facts, wanted)
    for line in found:
        log.warning(line)
    return found


def _apply(host: Host, plan: Steps, applied: list[s.Step], gate: Gate) -> list[str]:
    """Returns a line for each module that the driver is whole without and that could not be inserted."""
    refused = []
    for step in plan.steps:
        if step in applied:
            raise CommandFailed(
                f"done, but without effect: {step.describe()}",
                details=[f"its check still fails: {step.proof}"],
                resolution="see whether something else changes the driver of this node at the same time",
            )
        gate(len(applied) + 1, step)
        try:
            with log.step(step.describe()):
                step.apply(host)
        except DriverforgeError as error:
            if not isinstance(step, s.InsertModule) or step.needed:
                raise
            refused.append(notices.refused(step.name, error))
            log.warning(refused[-1])
        applied.append(step)
    return refused


def undo_steps(before: Facts, now: Facts) -> tuple[s.Step, ...]:
    """From a failure back towards what was before. Pure. What was loaded before stays loaded; what was unloaded cannot be put back."""
    found: list[s.Step] = []
    if now.root == "ours" and before.root != "ours":
        found.append(s.UnmountRoot())
    if now.stage_left and not before.stage_left:
        found.append(s.ClearStage())
    new = {name: module for name, module in now.loaded.items() if name not in before.loaded}
    if not before.loaded and (now.digest or now.journal.loading):
        found.append(s.ForgetLoad())
    found += [s.RemoveModule(name=name) for name in removal_order(new)]
    if not before.loaded:
        found += restore_firmware(now.journal)
    if not before.state_left:
        found.append(s.RemoveState())
    return tuple(found)


def leftovers(before: Facts, now: Facts) -> tuple[str, ...]:
    """How the node differs from what it was, for a person. Pure; empty when it does not."""
    lines = [
        f"module {name} is loaded and was not before" for name in now.loaded if name not in before.loaded
    ]
    lines += [
        f"module {name} {module.version} was loaded before and is not now"
        for name, module in before.loaded.items()
        if name not in now.loaded
    ]
    if before.root != now.root:
        lines.append(f"{paths.ROOT} is {now.root} and was {before.root}")
    if (before.firmware_path or "") != (now.firmware_path or ""):
        lines.append(
            f"the kernel's firmware search path is {now.firmware_path!r} and was {before.firmware_path!r}"
        )
    return tuple(lines)


def roll_back(host: Host, wanted: Wanted, before: Facts) -> tuple[str, ...]:
    """Undo what can be undone after a failure; a line for all that is left otherwise than before."""
    failed = tuple(
        line for step in undo_steps(before, observe(host, wanted)) if (line := _attempt(host, step))
    )
    return (*failed, *leftovers(before, observe(host, wanted)))


def _attempt(host: Host, step: s.Step) -> str:
    try:
        step.apply(host)
    except DriverforgeError as error:
        return f"could not {step.describe()}: {error.brief}"
    return ""
