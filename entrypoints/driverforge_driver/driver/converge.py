"""Bring the driver of a node to a wanted state, notice what it loses, take a failed start back."""

from __future__ import annotations

from dataclasses import replace

from driverforge_core import log
from driverforge_driver.driver import notices, steps
from driverforge_driver.driver.plan import next_steps, restore_firmware
from driverforge_driver.driver.usage import removal_order
from driverforge_driver.state import paths
from driverforge_driver.state.facts import DriverFacts, Goal, RootState, WantedDriver
from driverforge_driver.state.observe import manages_nvlink5, observe, root_state
from driverforge_host.ports import Host
from driverforge_host.reconcile.loop import Gate, no_gate, reconcile, undo
from driverforge_host.reconcile.outcomes import Done, Outcome, Step


def converge(host: Host, wanted: WantedDriver, *, gate: Gate = no_gate) -> Done:
    """Bring the node to `wanted`. Raises what blocks it, and what `reconcile` raises.

    The result's warnings tell what is missing on a node that is ready nevertheless.
    """

    def look(skipped: tuple[Step, ...]) -> Outcome:
        # A driver is whole without nvidia-peermem and without daemons. What was skipped is neither tried
        # again nor missed.
        asked = replace(
            wanted,
            peermem=wanted.peermem and not any(isinstance(step, steps.InsertModule) for step in skipped),
            unlabelled=any(isinstance(step, steps.LabelDevices) for step in skipped),
            without=tuple(step.program.name for step in skipped if isinstance(step, steps.StartDaemon)),
        )
        facts = observe(host, asked)
        outcome = next_steps(facts, asked)
        return (
            replace(outcome, warnings=_notice(host, facts, asked)) if isinstance(outcome, Done) else outcome
        )

    return reconcile(host, look, gate=gate)


def _notice(host: Host, facts: DriverFacts, wanted: WantedDriver) -> tuple[str, ...]:
    """Log what is not as somebody may expect. Returns the warnings among it."""
    if text := notices.left_out(facts, wanted):
        log.info(text)
    found = notices.warnings(facts, wanted, nvlink5=wanted.goal.loads and manages_nvlink5(host.files))
    for line in found:
        log.warning(line)
    return found


def lost(host: Host, wanted: WantedDriver) -> str:
    """What a ready driver has lost since, '' where it is whole. Asked often: it reads little."""
    loaded = host.modules.loaded()
    if missing := [name for name in wanted.names if name not in loaded]:
        return f"not loaded: {', '.join(missing)}"
    return "" if root_state(host) is RootState.OURS else f"{paths.ROOT} is not this container's root"


def roll_back(host: Host, wanted: WantedDriver, before: DriverFacts) -> tuple[str, ...]:
    """Undo what can be undone after a failure. Returns a line for each thing that is not as it was before."""
    # what goes away needs to know less, and the error may be in what it need not know
    away = replace(wanted, goal=Goal.STOPPED)
    failed = undo(host, undo_steps(before, observe(host, away)))
    forgotten = undo(host, forget_steps(before, observe(host, away)))
    return (*failed, *forgotten, *leftovers(before, observe(host, away)))


def undo_steps(before: DriverFacts, now: DriverFacts) -> tuple[Step, ...]:
    """The steps from a failure back towards `before`, as far as the modules. Pure.

    What was loaded before stays loaded. What was unloaded cannot be put back.
    """
    found: list[Step] = []
    if started := tuple(daemon for daemon in now.daemons if daemon not in before.daemons):
        found.append(steps.StopDaemons(daemons=started))
    if now.root is RootState.OURS and before.root is not RootState.OURS:
        found.append(steps.UnmountRoot())
    if now.stage_left and not before.stage_left:
        found.append(steps.ClearStage())
    old = {name: module.version for name, module in before.loaded.items()}
    new = {name: module for name, module in now.loaded.items() if old.get(name) != module.version}
    found += [steps.RemoveModule(name=name) for name in removal_order(new)]
    return tuple(found)


def forget_steps(before: DriverFacts, now: DriverFacts) -> tuple[Step, ...]:
    """The steps that take back our records once no module is left, `now` being after `undo_steps`. Pure.

    Where somebody opened a GPU meanwhile, modules stay. The records say then that they are ours, and the next
    start keeps them.
    """
    if now.loaded:
        return ()
    forget = (steps.ForgetLoad(),) if now.digest or now.journal.loading else ()
    state = () if before.state_left else (steps.RemoveState(),)
    return (*forget, *restore_firmware(now.journal), *state)


def leftovers(before: DriverFacts, now: DriverFacts) -> tuple[str, ...]:
    """How the node differs from what it was, a line each, for people. Pure."""
    lines = [
        f"module {name} is loaded and was not before" for name in now.loaded if name not in before.loaded
    ]
    lines += [
        f"module {name} {module.version} was loaded before and is not now"
        for name, module in before.loaded.items()
        if name not in now.loaded
    ]
    lines += [
        f"module {name} is version {module.version} and was {before.loaded[name].version}"
        for name, module in now.loaded.items()
        if name in before.loaded and before.loaded[name].version != module.version
    ]
    if before.root is not now.root:
        lines.append(f"{paths.ROOT} is {now.root.value} and was {before.root.value}")
    if (before.firmware_path or "") != (now.firmware_path or ""):
        lines.append(
            f"the kernel's firmware search path is {now.firmware_path!r} and was {before.firmware_path!r}"
        )
    return tuple(lines)
