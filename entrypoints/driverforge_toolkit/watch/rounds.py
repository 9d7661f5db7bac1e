"""The watch: look, compare, tell, act as the policy allows, until a stop signal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from driverforge_core import log
from driverforge_core.errors import DriverforgeError, TemporaryFailure
from driverforge_host.ports import Host
from driverforge_toolkit.watch import report
from driverforge_toolkit.watch.decide import (
    Announce,
    Reapply,
    ReapplyHistory,
    Regenerate,
    WatchPolicy,
    decide,
    evidence_of,
)
from driverforge_toolkit.watch.findings import (
    Cure,
    Findings,
    InstalledState,
    Observation,
    findings,
    next_baseline,
)
from driverforge_toolkit.watch.look import Observer, WatchTargets
from driverforge_toolkit.watch.report import EventReason, WatchEvent

EVERY = 10.0  # seconds between two looks at the stamps
WHOLE = 60.0  # a whole look at the latest after so long: /proc, /sys and a daemon's mind have no stamps
FOLDER = "/run/nvidia/toolkit"
LOCK = "watch.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchActions:
    """What a watch can do about findings; each raises what its own command raises.

    `regenerate` writes the spec of `WatchTargets.spec`.
    """

    apply: Callable[[], object]
    regenerate: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchState:
    """What a watch knows between two looks."""

    started: float
    seen: Observation
    baseline: InstalledState
    findings: Findings = ()
    history: ReapplyHistory = field(default_factory=ReapplyHistory)
    record: report.WatchRecord = field(default_factory=report.WatchRecord)
    reapply_at: float | None = None
    failure: str = ""  # of the last try to write the spec: tell once


@dataclass(slots=True)
class _Schedule:
    """When the node was looked at, by the monotonic clock, and how often."""

    stamps: object = None
    whole: float | None = None
    looks: dict[str, int] = field(default_factory=lambda: {"stamps": 0, "whole": 0})

    def due(self, stamps: object, now: float) -> bool:
        whole = self.whole is None or stamps != self.stamps or now - self.whole >= WHOLE
        self.looks["whole" if whole else "stamps"] += 1
        return whole


def watch(
    host: Host,
    targets: WatchTargets,
    actions: WatchActions,
    policy: WatchPolicy,
    *,
    every: float = EVERY,
    folder: str = FOLDER,
) -> str:
    """Watch until a stop signal, and return its name.

    Raises TemporaryFailure where another watch runs here.
    """
    host.files.make_dirs(folder)
    with host.files.lock(f"{folder}/{LOCK}", text="driverctl\n") as ours:
        if not ours:
            raise TemporaryFailure(
                "another driverctl is watching this node",
                resolution="stop it first (`driverctl toolkit run` watches too)",
            )
        log.info("watching", every_seconds=every, reapply=policy.reapply, spec=targets.spec)
        try:
            return _until_stopped(host, targets, actions, policy, every=every, folder=folder)
        finally:
            report.write_status(host.files, folder, None)
            host.files.remove(f"{folder}/{report.METRICS}")


def _until_stopped(
    host: Host,
    targets: WatchTargets,
    actions: WatchActions,
    policy: WatchPolicy,
    *,
    every: float,
    folder: str,
) -> str:
    observer, schedule = Observer(targets), _Schedule()
    state: WatchState | None = None
    while not (signal := host.clock.wait(0 if state is None else every)):
        if not schedule.due(observer.fingerprint(), host.clock.monotonic()):
            continue
        seen = observer.look()
        now = host.clock.now()
        before = state or WatchState(started=now, seen=seen, baseline=seen.installed)
        after = act(host, actions, policy, after_look(before, seen, now))
        # taken after the actions, so that our own writes are no change; what came of them is looked at soon
        schedule.stamps = observer.fingerprint()
        schedule.whole = None if put_right(before, after) else host.clock.monotonic()
        publish(host, after, folder, changed=state is None or after != state, schedule=schedule)
        state = after
    return signal


def put_right(before: WatchState, after: WatchState) -> bool:
    """Whether something was put right in this round, so that the next look is due soon."""
    done = ("spec_writes_total", "done")
    reapplied = after.history.tried != before.history.tried
    return reapplied or after.record.counts.get(done) != before.record.counts.get(done)


def after_look(state: WatchState, seen: Observation, now: float) -> WatchState:
    """The state after a look, with what changed recorded."""
    found = findings(seen, state.baseline, state.findings, now)
    # what was announced is for one drift: when that is gone, the next one is announced again
    drift = any(finding.cure is Cure.APPLY for finding in found)
    history = state.history if drift else replace(state.history, announced=None)
    return replace(
        state,
        seen=seen,
        findings=found,
        history=history,
        baseline=next_baseline(seen, state.baseline),
        record=report.record_changes(state.record, state.findings, found, now),
        reapply_at=state.reapply_at if history.announced is not None else None,
    )


def act(host: Host, actions: WatchActions, policy: WatchPolicy, state: WatchState) -> WatchState:
    """Do what was decided, and say so before and after."""
    now = host.clock.now()
    for action in decide(state.findings, policy, state.history, now, driver=state.seen.installed.driver):
        match action:
            case Regenerate():
                state = _regenerate(actions, state, action, now)
            case Announce():
                text = (
                    "the configuration will be applied again, in a minute at the earliest; "
                    f"the runtime may restart: {'; '.join(action.why)}"
                )
                event = WatchEvent(
                    time=now, reason=EventReason.REAPPLY_ANNOUNCED, subject="runtime", text=text
                )
                history = replace(state.history, announced=now)
                state = replace(state, history=history, reapply_at=action.at, record=state.record.tell(event))
            case Reapply():
                state = _reapply(host, actions, state, action)
    return state


def _regenerate(actions: WatchActions, state: WatchState, action: Regenerate, now: float) -> WatchState:
    try:
        actions.regenerate()
    except DriverforgeError as error:
        record = state.record.counted("spec_writes_total", "failed")
        if error.brief != state.failure:
            record = record.tell(
                WatchEvent(time=now, reason=EventReason.SPEC_FAILED, subject="CDI", text=error.brief)
            )
        return replace(state, record=record, failure=error.brief)
    event = WatchEvent(time=now, reason=EventReason.SPEC_WRITTEN, subject="CDI", text="; ".join(action.why))
    return replace(state, record=state.record.counted("spec_writes_total", "done").tell(event), failure="")


def _reapply(host: Host, actions: WatchActions, state: WatchState, action: Reapply) -> WatchState:
    log.warning("applying the runtime's configuration again, as announced", why="; ".join(action.why))
    try:
        actions.apply()
    except DriverforgeError as error:
        result, reason, text = (
            "failed",
            EventReason.REAPPLY_FAILED,
            "; ".join((error.brief, *error.details[-3:])),
        )
    else:
        result, reason, text = "done", EventReason.REAPPLIED, "; ".join(action.why)
    now = host.clock.now()
    event = WatchEvent(time=now, reason=reason, subject="runtime", text=text)
    record = state.record.counted("reapplies_total", result).tell(event)
    failed = evidence_of(state.findings) if result == "failed" else ()
    return replace(state, history=ReapplyHistory(tried=now, failed=failed), record=record, reapply_at=None)


def publish(host: Host, state: WatchState, folder: str, *, changed: bool, schedule: _Schedule) -> None:
    """Write the status where something changed, and the metrics after every look.

    A full disk or a read-only folder does not end the watch.
    """
    try:
        if changed:
            part = report.status(
                state.findings,
                state.seen,
                state.record,
                started=state.started,
                next_reapply=state.reapply_at,
            )
            report.write_status(host.files, folder, part)
        text = report.metrics(
            state.findings, state.seen, state.record, looks=schedule.looks, now=host.clock.now()
        )
        report.write_metrics(host.files, folder, text)
    except DriverforgeError as error:
        log.warning("the watch cannot write its status", why=error.brief)
