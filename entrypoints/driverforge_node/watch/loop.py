"""The watch: look, compare, tell, act as the policy allows, until a stop signal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from driverforge_core.errors import DriverforgeError, TemporaryFailure
from driverforge_node import log
from driverforge_node.host.ports import Host
from driverforge_node.watch import report
from driverforge_node.watch.decide import Announce, Past, Policy, Reapply, Regenerate, decide, evidence_of
from driverforge_node.watch.findings import Findings, Installed, Seen, accepted, findings
from driverforge_node.watch.observe import Eyes, Targets

EVERY = 10.0  # seconds between two looks at the stamps
WHOLE = 60.0  # a whole look at the latest after so long: /proc, /sys and a daemon's mind have no stamps
FOLDER = "/run/nvidia/toolkit"
LOCK = "watch.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What a watch can do; each raises what its own command raises. `regenerate` writes the spec of `Targets.spec`."""

    apply: Callable[[], object]
    regenerate: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a watch knows between two looks."""

    started: float
    seen: Seen
    baseline: Installed
    findings: Findings = ()
    past: Past = field(default_factory=Past)
    account: report.Account = field(default_factory=report.Account)
    reapply_at: float | None = None
    failure: str = ""  # of the last try to write the spec: told once


@dataclass(slots=True)
class _Pace:
    """When the node was looked at, by the monotonic clock, and how often."""

    stamps: object = None
    whole: float | None = None
    looks: dict[str, int] = field(default_factory=lambda: {"stamps": 0, "whole": 0})

    def due(self, stamps: object, now: float) -> bool:
        whole = self.whole is None or stamps != self.stamps or now - self.whole >= WHOLE
        self.looks["whole" if whole else "stamps"] += 1
        return whole


def watch(
    host: Host, targets: Targets, hands: Hands, policy: Policy, *, every: float = EVERY, folder: str = FOLDER
) -> str:
    """Until a stop signal; its name. Raises TemporaryFailure where another watch runs on this node."""
    host.files.make_dirs(folder)
    with host.files.lock(f"{folder}/{LOCK}", text="driverctl\n") as ours:
        if not ours:
            raise TemporaryFailure(
                "another driverctl watches this node",
                resolution="stop it first (`driverctl toolkit run` watches too)",
            )
        log.info("watching", every_seconds=every, reapply=policy.reapply, spec=targets.spec)
        try:
            return _until_stopped(host, targets, hands, policy, every=every, folder=folder)
        finally:
            report.write_status(host.files, folder, None)
            host.files.remove(f"{folder}/{report.METRICS}")


def _until_stopped(
    host: Host, targets: Targets, hands: Hands, policy: Policy, *, every: float, folder: str
) -> str:
    eyes, pace = Eyes(targets), _Pace()
    state: State | None = None
    while not (signal := host.clock.wait(0 if state is None else every)):
        if not pace.due(eyes.fingerprint(), host.clock.monotonic()):
            continue
        seen = eyes.look()
        now = host.clock.now()
        before = state or State(started=now, seen=seen, baseline=seen.installed)
        after = act(host, hands, policy, noticed(before, seen, now))
        pace.stamps, pace.whole = eyes.fingerprint(), None if acted(before, after) else host.clock.monotonic()
        tell(host, after, folder, changed=state is None or after != state, pace=pace)
        state = after
    return signal


def acted(before: State, after: State) -> bool:
    """Whether something was put right, so that what came of it is worth a look soon."""
    done = ("spec_writes_total", "done")
    return after.past.tried != before.past.tried or after.account.counts.get(
        done
    ) != before.account.counts.get(done)


def noticed(state: State, seen: Seen, now: float) -> State:
    """The state after a look, and what there is to say of it."""
    found = findings(seen, state.baseline, state.findings, now)
    past = (
        state.past
        if any(finding.cure == "apply" for finding in found)
        else replace(state.past, announced=None)
    )
    return replace(
        state, seen=seen, findings=found, past=past, baseline=accepted(seen, state.baseline),
        account=report.changes(state.account, state.findings, found, now),
        reapply_at=state.reapply_at if past.announced is not None else None,
    )  # fmt: skip


def act(host: Host, hands: Hands, policy: Policy, state: State) -> State:
    """Do what was decided, and say so before and after."""
    now = host.clock.now()
    for action in decide(state.findings, policy, state.past, now, driver=state.seen.installed.driver):
        match action:
            case Regenerate():
                state = _regenerated(hands, state, action, now)
            case Announce():
                text = f"the configuration is applied again in a moment at the earliest; the runtime may restart: {'; '.join(action.why)}"
                event = report.Event(time=now, reason="ReapplyAnnounced", subject="runtime", text=text)
                past = replace(state.past, announced=now)
                state = replace(state, past=past, reapply_at=action.at, account=state.account.told(event))
            case Reapply():
                state = _reapplied(host, hands, state, action)
    return state


def _regenerated(hands: Hands, state: State, action: Regenerate, now: float) -> State:
    try:
        hands.regenerate()
    except DriverforgeError as error:
        account = state.account.counted("spec_writes_total", "failed")
        if error.brief != state.failure:
            account = account.told(
                report.Event(time=now, reason="SpecFailed", subject="CDI", text=error.brief)
            )
        return replace(state, account=account, failure=error.brief)
    event = report.Event(time=now, reason="SpecWritten", subject="CDI", text="; ".join(action.why))
    return replace(state, account=state.account.counted("spec_writes_total", "done").told(event), failure="")


def _reapplied(host: Host, hands: Hands, state: State, action: Reapply) -> State:
    log.warning("applying the runtime's configuration again, as announced", why="; ".join(action.why))
    try:
        hands.apply()
    except DriverforgeError as error:
        result, reason, text = "failed", "ReapplyFailed", "; ".join((error.brief, *error.details[-3:]))
    else:
        result, reason, text = "done", "Reapplied", "; ".join(action.why)
    now = host.clock.now()
    event = report.Event(time=now, reason=reason, subject="runtime", text=text)
    account = state.account.counted("reapplies_total", result).told(event)
    failed = evidence_of(state.findings) if result == "failed" else ()
    return replace(state, past=Past(tried=now, failed=failed), account=account, reapply_at=None)


def tell(host: Host, state: State, folder: str, *, changed: bool, pace: _Pace) -> None:
    """Status where something changed, metrics at every whole look. A full disk or a read-only folder does not end the watch."""
    try:
        if changed:
            part = report.status(
                state.findings,
                state.seen,
                state.account,
                started=state.started,
                next_reapply=state.reapply_at,
            )
            report.write_status(host.files, folder, part)
        text = report.metrics(
            state.findings, state.seen, state.account, looks=pace.looks, now=host.clock.now()
        )
        report.write_metrics(host.files, folder, text)
    except DriverforgeError as error:
        log.warning("the watch cannot write its status", why=error.brief)
