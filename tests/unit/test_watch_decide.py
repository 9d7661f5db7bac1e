"""From what was seen to findings, and from findings to actions.

Every finding has a look that shows it, and one beside it that does not.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from driverforge_toolkit.watch.decide import (
    HOLD,
    HOLD_FAILED,
    NOTICE,
    Announce,
    Reapply,
    ReapplyHistory,
    Regenerate,
    WatchPolicy,
    decide,
    evidence_of,
)
from driverforge_toolkit.watch.findings import (
    FileState,
    FindingKind,
    Findings,
    InstalledState,
    Observation,
    RuntimeSeen,
    SpecSeen,
    findings,
    next_baseline,
)
from driverforge_toolkit.watch.window import parse

CONFIG = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
SPEC = "/var/run/cdi/management.nvidia.com-gpu.yaml"
OURS = {"nvidia": "/t/nvidia-container-runtime"}
HERE = InstalledState(driver="580.65.06", root="(1, 2)", release="1.18.0-abc")
RUNTIME = RuntimeSeen(
    kind="containerd",
    config=CONFIG,
    handlers=OURS,
    files={CONFIG: FileState.AS_WRITTEN, DROP_IN: FileState.AS_WRITTEN},
    stated={**OURS, "runc": ""},
    reported={**OURS, "runc": ""},
)
GOOD = Observation(
    installed=HERE, runtimes=(RUNTIME,), specs=(SpecSeen(path=SPEC, managed=True, written=5.0),), problems={}
)
NOON = 1_000_000_000.0


def runtime(**changes: object) -> Observation:
    return replace(GOOD, runtimes=(replace(RUNTIME, **changes),))  # type: ignore[arg-type]


def spec(*reasons: str, managed: bool = True) -> Observation:
    return replace(GOOD, specs=(SpecSeen(path=SPEC, managed=managed, written=5.0, reasons=reasons),))


def look(
    seen: Observation, *, baseline: InstalledState = HERE, before: Findings = (), now: float = NOON
) -> Findings:
    return findings(seen, baseline, before, now)


CHANGED = {CONFIG: FileState.CHANGED, DROP_IN: FileState.AS_WRITTEN}


@pytest.mark.parametrize(
    ("seen", "what", "evidence"),
    [
        (
            runtime(files=CHANGED, stated={"runc": ""}),
            FindingKind.CONFIG_REWRITTEN,
            "containerd would be without nvidia after its next restart",
        ),
        (
            runtime(files={CONFIG: FileState.GONE}, stated={}),
            FindingKind.CONFIG_REWRITTEN,
            f"{CONFIG} is gone",
        ),
        (
            runtime(stated={"nvidia": "/usr/bin/other"}),
            FindingKind.CONFIG_REWRITTEN,
            "containerd would be without nvidia after its next restart",
        ),
        (
            runtime(files=CHANGED, stated=None, refusal=("line 3: what?",)),
            FindingKind.CONFIG_REWRITTEN,
            "line 3: what?",
        ),
        (
            runtime(files={"/t.tmpl": FileState.CHANGED}, stripped=("/t.tmpl",)),
            FindingKind.CONFIG_REWRITTEN,
            "when its root file is made again",
        ),
        (runtime(files=CHANGED), FindingKind.CONFIG_EDITED, f"{CONFIG} was changed by somebody else"),
        (runtime(shadowed=("x: 1 -> 2",)), FindingKind.DROP_IN_SHADOWS, "x: 1 -> 2"),
        (
            runtime(reported={"runc": ""}),
            FindingKind.HANDLERS_NOT_IN_FORCE,
            "the running containerd does not have nvidia",
        ),
        (runtime(reported={"nvidia": "/other"}), FindingKind.HANDLERS_NOT_IN_FORCE, "it reports nvidia"),
        (runtime(reported=None, silence=("nothing answers",)), FindingKind.RUNTIME_SILENT, "nothing answers"),
        (runtime(unfinished="it ended"), FindingKind.CHANGE_UNFINISHED, "it ended"),
        (
            runtime(missing=("/t/nvidia-container-runtime",)),
            FindingKind.PROGRAMS_MISSING,
            "/t/nvidia-container-runtime is not there",
        ),
        (spec("the device files changed"), FindingKind.SPEC_STALE, "the device files changed"),
        (
            replace(GOOD, installed=replace(HERE, driver="595.1.1")),
            FindingKind.DRIVER_REINSTALLED,
            "its version was 580.65.06, it is 595.1.1",
        ),
        (
            replace(GOOD, installed=replace(HERE, driver="")),
            FindingKind.DRIVER_REINSTALLED,
            "its version was 580.65.06, it is gone",
        ),
        (
            replace(GOOD, installed=replace(HERE, root="(1, 9)")),
            FindingKind.DRIVER_REINSTALLED,
            "580.65.06 was installed again",
        ),
        (
            replace(GOOD, installed=replace(HERE, release="1.19.0-def")),
            FindingKind.RELEASE_SWITCHED,
            "1.18.0-abc was in force, now 1.19.0-def",
        ),
        (
            replace(GOOD, problems={CONFIG: ("the journal is damaged",)}),
            FindingKind.CANNOT_LOOK,
            "the journal is damaged",
        ),
    ],
)
def test_a_finding_and_its_evidence(seen: Observation, what: FindingKind, evidence: str) -> None:
    (found,) = look(seen)
    assert found.what == what
    assert any(evidence in line for line in found.evidence), found.evidence
    assert found.remedy
    assert found.since == NOON


@pytest.mark.parametrize(
    "seen",
    [
        GOOD,
        runtime(reported={"nvidia": None}),  # a runtime that tells no programs is believed
        # somebody else's handler
        runtime(stated={**OURS, "kata": "/usr/bin/kata"}, reported={**OURS, "kata": "/usr/bin/kata"}),
        replace(GOOD, runtimes=()),
    ],
)
def test_looks_without_a_finding(seen: Observation) -> None:
    assert look(seen) == ()


def test_nothing_is_compared_with_what_was_not_there() -> None:
    assert look(replace(GOOD, installed=HERE), baseline=InstalledState()) == ()


def test_a_finding_keeps_its_age_while_its_evidence_changes() -> None:
    before = look(spec("one"))
    (found,) = look(spec("two"), before=before, now=NOON + 60)
    assert (found.since, found.evidence) == (NOON, ("two",))


def test_a_change_under_way_hides_what_follows_from_it() -> None:
    found = look(runtime(unfinished="it ended", files=CHANGED, stated={}, reported=None))
    assert [finding.what for finding in found] == [FindingKind.CHANGE_UNFINISHED]


def test_a_new_driver_is_the_one_to_compare_with_once_its_spec_is_right() -> None:
    new = replace(HERE, driver="595.1.1")
    stale = replace(spec("the driver's version changed"), installed=new)
    assert next_baseline(stale, HERE) == HERE
    assert next_baseline(replace(GOOD, installed=new), HERE) == new
    assert next_baseline(replace(GOOD, installed=replace(new, driver="")), HERE) == HERE
    assert (
        next_baseline(replace(GOOD, installed=replace(HERE, release="other")), HERE).release == HERE.release
    )


DRIFT = look(runtime(reported={"runc": ""}))
STALE = look(spec("old"))
LATER = NOON + NOTICE
REPORT, REAPPLY = WatchPolicy(), WatchPolicy(reapply=True)
NEVER, ANNOUNCED = ReapplyHistory(), ReapplyHistory(announced=NOON)
FAILED = ReapplyHistory(announced=NOON, failed=evidence_of(DRIFT))


@pytest.mark.parametrize(
    ("found", "policy", "past", "now", "kinds"),
    [
        ((), REAPPLY, NEVER, NOON, []),
        # report only is the default
        (DRIFT, REPORT, NEVER, NOON, []),
        (DRIFT, REPORT, ReapplyHistory(announced=NOON - 9999), NOON, []),
        # never without saying so before
        (DRIFT, REAPPLY, NEVER, NOON, [Announce]),
        (DRIFT, REAPPLY, ANNOUNCED, LATER - 1, []),
        (DRIFT, REAPPLY, ANNOUNCED, LATER, [Reapply]),
        # two tools that overwrite each other
        (DRIFT, REAPPLY, replace(ANNOUNCED, tried=LATER - HOLD + 1), LATER, []),
        (DRIFT, REAPPLY, replace(ANNOUNCED, tried=LATER - HOLD), LATER, [Reapply]),
        (DRIFT, REAPPLY, replace(FAILED, tried=LATER - HOLD), LATER, []),
        (DRIFT, REAPPLY, replace(FAILED, tried=LATER - HOLD_FAILED), LATER, [Reapply]),
        # somebody has repaired what the daemon refused; something else is wrong now
        (DRIFT, REAPPLY, replace(FAILED, tried=LATER - HOLD, failed=("line 3: what?",)), LATER, [Reapply]),
        # an edit that leaves our part alone, and a daemon that is down, which is a person's
        (look(runtime(files=CHANGED)), REAPPLY, ANNOUNCED, LATER, []),
        (look(runtime(reported=None)), REAPPLY, ANNOUNCED, LATER, []),
        (STALE, REPORT, NEVER, NOON, [Regenerate]),
        (STALE, WatchPolicy(regenerate=False), NEVER, NOON, []),
        (STALE + DRIFT, REAPPLY, ANNOUNCED, LATER, [Regenerate, Reapply]),
    ],
)
def test_what_is_done(
    found: Findings, policy: WatchPolicy, past: ReapplyHistory, now: float, kinds: list[type]
) -> None:
    assert [type(action) for action in decide(found, policy, past, now, driver="580.65.06")] == kinds


def test_a_minute_is_between_the_announcement_and_the_reapply() -> None:
    """docs/watch.md promises it, and the next two pauses."""
    (announced,) = decide(DRIFT, REAPPLY, NEVER, NOON, driver="")
    assert announced == Announce(at=NOON + 60, why=(f"handlers-not-in-force {CONFIG}",))


@pytest.mark.parametrize(
    ("failed", "pause"), [((), 3600), (("line 3: what?",), 3600), (evidence_of(DRIFT), 24 * 3600)]
)
def test_the_next_reapply_is_announced_for_an_hour_or_a_day_after_the_last(
    failed: tuple[str, ...], pause: int
) -> None:
    past = ReapplyHistory(tried=NOON - 120, failed=failed)
    (announced,) = decide(DRIFT, REAPPLY, past, NOON, driver="")
    assert isinstance(announced, Announce)
    assert announced.at == NOON - 120 + pause


def test_no_spec_is_written_without_a_driver() -> None:
    assert decide(STALE, WatchPolicy(), ReapplyHistory(), NOON, driver="") == ()


def test_a_window_is_kept_to() -> None:
    """1,000,000,000 is a Sunday, 01:46:40."""
    policy = WatchPolicy(reapply=True, windows=parse(["Sun 03:00-04:00"]))
    opens = NOON - 6400 + 3 * 3600
    (announced,) = decide(DRIFT, policy, ReapplyHistory(), NOON, driver="")
    assert isinstance(announced, Announce)
    assert announced.at == opens
    past = ReapplyHistory(announced=NOON)
    assert decide(DRIFT, policy, past, opens - 1, driver="") == ()
    assert [type(action) for action in decide(DRIFT, policy, past, opens, driver="")] == [Reapply]
    assert decide(DRIFT, policy, past, opens + 3600, driver="") == ()
