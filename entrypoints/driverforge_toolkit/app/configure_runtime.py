"""The life of a change of the node's container runtime, from the lock to the proof.

For `driverctl runtime`, for `driverctl toolkit run`, and for the watch. What plans and changes is imported
where it is needed: an apply with nothing to do goes without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from driverforge_core import log
from driverforge_core.errors import DriverforgeError
from driverforge_toolkit.runtime import journal
from driverforge_toolkit.runtime.request import RuntimeRequest
from driverforge_toolkit.runtime.transaction import summary, unchanged
from driverforge_toolkit.runtime.transaction.change_plan import ChangePlan, RuntimeSystem


class RuntimeAction(Enum):
    """What is done to the runtime's configuration.

    `STRIP` reverts our change; where there is none, it takes out what others wrote of NVIDIA's.
    """

    APPLY = "apply"
    REVERT = "revert"
    STRIP = "strip"


def plan_of(system: RuntimeSystem, action: RuntimeAction) -> ChangePlan | None:
    """What the action would do; None where there is nothing to revert.

    Raises as `plans.apply_plan`.
    """
    from driverforge_toolkit.runtime.transaction import plans, refused

    match action:
        case RuntimeAction.APPLY:
            plan = plans.apply_plan(system)
            known = refused.refusal_of(system, plan, refused.digest_of(plan, system))
            return replace(plan, notes=(*plan.notes, refused.note_of(plan, known))) if known else plan
        case RuntimeAction.REVERT:
            return plans.revert_plan(system)
        case RuntimeAction.STRIP:
            return plans.revert_plan(system, strip=True) or plans.strip_plan(system)


def change_runtime(
    system: RuntimeSystem,
    action: RuntimeAction,
    announce: Callable[[ChangePlan], None],
    *,
    force: bool = False,
) -> ChangePlan | None:
    """Plan the action and carry it out, alone on this node. None where there is nothing to revert.

    `announce` hears of the plan before anything is written. `force` applies what the daemon has refused
    before. Raises as `plan_of` and `change.carry_out`, and TemporaryFailure while another driverctl works on
    this node's runtime.
    """
    if action is RuntimeAction.APPLY:
        return _apply(system, announce, force=force)
    from driverforge_toolkit.runtime.transaction import change

    with journal.exclusive_runtime(system.host):
        change.take_over(system)
        plan = plan_of(system, action)
        if plan is not None:
            announce(plan)
            # what a revert leaves for the pods that are there is tried however often it was refused
            change.carry_out(plan, system, force=True)
    return plan


def _apply(
    system: RuntimeSystem, announce: Callable[[ChangePlan], None], *, force: bool = False
) -> ChangePlan:
    """`change_runtime` for APPLY, which always has a plan."""
    with journal.exclusive_runtime(system.host):
        settled = unchanged.settled_plan(system)
        if settled is not None:
            summary.warn_missing(system.host, settled)
            announce(settled)
            return settled
        from driverforge_toolkit.runtime.transaction import change, plans

        change.take_over(system)
        plan = plans.apply_plan(system)
        summary.warn_missing(system.host, plan)
        announce(plan)
        change.carry_out(plan, system, force=force)
    return plan


def apply_runtime(system: RuntimeSystem) -> bool:
    """Apply, and log what was done. Returns whether the runtime was restarted."""
    plan = _apply(system, _log_notes)
    log.info(summary.done_text(plan, system))
    return plan.activation == "restart" and system.request.restart_mode != "none"


def revert_at_stop(system: RuntimeSystem) -> None:
    """Revert, and log what was done.

    What would take longer than a stop may is handed over to the node.
    """
    from driverforge_toolkit.runtime.transaction import change, plans

    with journal.exclusive_runtime(system.host):
        change.take_over(system)
        plan = plans.revert_plan(system)
        if plan is None:
            log.info("nothing to revert: driverctl has not changed this node's container runtime")
            return
        _log_notes(plan)
        if change.outlasts_a_stop(plan, system):
            change.hand_over(plan, system)
            return
        change.carry_out(plan, system, force=True)
    log.info(summary.done_text(plan, system))


def _log_notes(plan: ChangePlan) -> None:
    for note in plan.notes:
        log.warning(note)


def reapply_runtime(system: RuntimeSystem) -> None:
    """Apply again what is in the journal.

    With the runtime, files, handlers and default that it has, whatever the options say.
    """
    for entry in journal.entries(system.host):
        apply_runtime(replace(system, request=request_again(system.request, entry)))


def request_again(request: RuntimeRequest, entry: journal.JournalEntry) -> RuntimeRequest:
    """The request that made `entry`. What no entry has comes from `request`."""
    # the entry of a revert has no handlers: the one before it has
    made = entry if entry.handlers or entry.earlier is None else entry.earlier
    known = made.wanted or replace(request.wanted, release_default=False)
    wanted = replace(known, default=made.default)
    return replace(
        request,
        wanted=wanted,
        runtime=entry.kind,
        socket=entry.socket,
        config=entry.config,
        drop_in=entry.drop_in,
    )


def low_level_of(system: RuntimeSystem) -> Sequence[str]:
    """The low-level runtimes that the runtime's configuration names, without what we wrote into it.

    None where the runtime cannot be asked: the reason is logged.
    """
    from driverforge_toolkit.runtime.backends.effective import effective_configuration
    from driverforge_toolkit.runtime.find import selection
    from driverforge_toolkit.runtime.transaction.observed import observe_runtime

    host = system.host
    try:
        daemon = selection.select(host, system.sockets, system.request)
        seen = observe_runtime(system, daemon)
        return seen.edit.low_level_runtimes(effective_configuration(host, daemon, seen.base, seen.disk))
    except DriverforgeError as error:
        log.warning(
            "the runtime does not say what runs its containers; runc or crun is assumed", why=error.brief
        )
        return ()
