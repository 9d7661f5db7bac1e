"""Bring the driver of a node to a wanted state, warn of what it lacks, notice what it loses, take a failed
start back.
"""

from __future__ import annotations

from dataclasses import replace

from driverforge_core.names import PEERMEM
from driverforge_node import log
from driverforge_node.driver import steps
from driverforge_node.driver.plan import next_steps, restore_firmware
from driverforge_node.driver.state import paths
from driverforge_node.driver.state.facts import DriverFacts, Goal, RootState, WantedDriver
from driverforge_node.driver.state.observe import observe, root_state
from driverforge_node.driver.usage import removal_order
from driverforge_node.ports import Host
from driverforge_node.reconcile.loop import Gate, no_gate, reconcile, undo
from driverforge_node.reconcile.outcomes import Done, Outcome, Step


def converge(host: Host, wanted: WantedDriver, *, gate: Gate = no_gate) -> Done:
    """Bring the node to `wanted`. Raises what blocks it, and what `reconcile` raises.

    The result's warnings tell what is missing on a node that is ready nevertheless.
    """

    def look(skipped: tuple[str, ...]) -> Outcome:
        # nvidia-peermem is the one module that a driver is whole without. Once skipped, it is neither tried
        # again nor missed.
        asked = replace(wanted, peermem=False) if skipped else wanted
        facts = observe(host, asked)
        outcome = next_steps(facts, asked)
        return replace(outcome, warnings=_notice(facts, asked)) if isinstance(outcome, Done) else outcome

    return reconcile(host, look, gate=gate)


def _notice(facts: DriverFacts, wanted: WantedDriver) -> tuple[str, ...]:
    """Log what is not as somebody may expect. Returns the warnings among it."""
    if text := left_out(facts, wanted):
        log.info(text)
    found = warnings(facts, wanted)
    for line in found:
        log.warning(line)
    return found


def warnings(facts: DriverFacts, wanted: WantedDriver) -> tuple[str, ...]:
    """What a ready node lacks: for log and status file, a line each, with the next step. Pure."""
    return (*_nvswitches(facts), *_peermem(facts, wanted)) if wanted.goal in (Goal.SERVE, Goal.LOAD) else ()


def left_out(facts: DriverFacts, wanted: WantedDriver) -> str:
    """What was asked for and has nothing to do on this node; '' where there is no such thing. Pure."""
    asked = wanted.goal in (Goal.SERVE, Goal.LOAD) and wanted.peermem and not facts.network.devices
    return "nvidia-peermem is left out: no network device of PCI vendor 15b3 on this node" if asked else ""


def _nvswitches(facts: DriverFacts) -> tuple[str, ...]:
    if not facts.nvswitches:
        return ()
    version = facts.loaded["nvidia"].version if "nvidia" in facts.loaded else "the driver's version"
    there = (
        f"this node has {len(facts.nvswitches)} NVSwitches ({', '.join(facts.nvswitches)}) "
        "and this image runs no fabric manager"
    )
    effect = "without one, CUDA programs end with error 802 (system not yet initialized)"
    return (
        f"{there}: {effect}; next: run nvidia-fabricmanager {version} on the node, unless it does already",
    )


def _peermem(facts: DriverFacts, wanted: WantedDriver) -> tuple[str, ...]:
    if not wanted.peermem or PEERMEM in facts.loaded or not facts.network.devices:
        return ()
    if not facts.network.ready:
        reason, step = (
            "the kernel has no InfiniBand yet (no /sys/class/infiniband)",
            "load the network driver (mlx5_ib), then start again",
        )
    else:
        reason, step = (
            f"the module set of driver {wanted.driver} has none",
            "use an image that was built with it",
        )
    return (f"nvidia-peermem is not loaded: {reason}; next: {step}",)


def lost(host: Host, wanted: WantedDriver) -> str:
    """What a ready driver has lost since, '' where it is whole. Asked often: it reads little."""
    loaded = host.modules.loaded()
    if missing := [name for name in wanted.names if name not in loaded]:
        return f"not loaded: {', '.join(missing)}"
    return "" if root_state(host) is RootState.OURS else f"{paths.ROOT} is not this container's root"


def roll_back(host: Host, wanted: WantedDriver, before: DriverFacts) -> tuple[str, ...]:
    """Undo what can be undone after a failure. Returns a line for each thing that is not as it was before."""
    failed = undo(host, undo_steps(before, observe(host, wanted)))
    forgotten = undo(host, forget_steps(before, observe(host, wanted)))
    return (*failed, *forgotten, *leftovers(before, observe(host, wanted)))


def undo_steps(before: DriverFacts, now: DriverFacts) -> tuple[Step, ...]:
    """The steps from a failure back towards `before`, as far as the modules. Pure.

    What was loaded before stays loaded. What was unloaded cannot be put back.
    """
    found: list[Step] = []
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
