"""From what was seen to findings, and from findings to actions: every finding has a look that shows it and one beside it that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driverforge_node.watch.decide import (
    HOLD,
    HOLD_FAILED,
    NOTICE,
    Announce,
    Past,
    Policy,
    Reapply,
    Regenerate,
    decide,
    evidence_of,
)
from driverforge_node.watch.findings import (
    Findings,
    Installed,
    RuntimeSeen,
    Seen,
    SpecSeen,
    What,
    accepted,
    findings,
)
from driverforge_node.watch.window import parse

CONFIG = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
SPEC = "/var/run/cdi/management.nvidia.com-gpu.yaml"
OURS = {"nvidia": "/t/nvidia-container-runtime"}
HERE = Installed(driver="580.65.06", root="(1, 2)", release="1.18.0-abc")
RUNTIME = RuntimeSeen(
    kind="containerd", config=CONFIG, handlers=OURS, files={CONFIG: "as written", DROP_IN: "as written"},
    stated={**OURS, "runc": ""}, reported={**OURS, "runc": ""},
)  # fmt: skip
GOOD = Seen(
    installed=HERE, runtimes=(RUNTIME,), specs=(SpecSeen(path=SPEC, managed=True, written=5.0),), problems={}
)
NOON = 1_000_000_000.0


def runtime(**changes: object) -> Seen:
    return replace(GOOD, runtimes=(replace(RUNTIME, **changes),))  # type: ignore[arg-type]


def spec(*reasons: str, managed: bool = True) -> Seen:
    return replace(GOOD, specs=(SpecSeen(path=SPEC, managed=managed, written=5.0, reasons=reasons),))


def look(seen: Seen, *, baseline: Installed = HERE, before: Findings = (), now: float = NOON) -> Findings:
    return findings(seen, baseline, before, now)


CHANGED = {CONFIG: "changed", DROP_IN: "as written"}


@pytest.mark.parametrize(
    ("seen", "what", "evidence"),
    [
        (runtime(files=CHANGED, stated={"runc": ""}), "config-rewritten", "containerd would be without nvidia after its next restart"),
        (runtime(files={CONFIG: "gone"}, stated={}), "config-rewritten", f"{CONFIG} is gone"),
        (runtime(stated={"nvidia": "/usr/bin/other"}), "config-rewritten", "containerd would be without nvidia after its next restart"),
        (runtime(files=CHANGED, stated=None, refusal=("line 3: what?",)), "config-rewritten", "line 3: what?"),
        (runtime(files={"/t.tmpl": "changed"}, stripped=("/t.tmpl",)), "config-rewritten", "when its root file is made again"),
        (runtime(files=CHANGED), "config-edited", f"{CONFIG} was changed by somebody else"),
        (runtime(shadowed=("x: 1 -> 2",)), "drop-in-shadows", "x: 1 -> 2"),
        (runtime(reported={"runc": ""}), "handlers-not-in-force", "the running containerd does not have nvidia"),
        (runtime(reported={"nvidia": "/other"}), "handlers-not-in-force", "it reports nvidia"),
        (runtime(reported=None, silence=("nothing answers",)), "runtime-silent", "nothing answers"),
        (runtime(unfinished="it ended"), "change-unfinished", "it ended"),
        (runtime(missing=("/t/nvidia-container-runtime",)), "programs-missing", "/t/nvidia-container-runtime is not there"),
        (spec("the device files changed"), "spec-stale", "the device files changed"),
        (replace(GOOD, installed=replace(HERE, driver="595.1.1")), "driver-reinstalled", "its version was 580.65.06, it is 595.1.1"),
        (replace(GOOD, installed=replace(HERE, driver="")), "driver-reinstalled", "its version was 580.65.06, it is gone"),
        (replace(GOOD, installed=replace(HERE, root="(1, 9)")), "driver-reinstalled", "580.65.06 was installed again"),
        (replace(GOOD, installed=replace(HERE, release="1.19.0-def")), "release-switched", "1.18.0-abc was in force, now 1.19.0-def"),
        (replace(GOOD, problems={CONFIG: ("the journal is damaged",)}), "cannot-look", "the journal is damaged"),
    ],
)  # fmt: skip
def test_a_finding_and_its_evidence(seen: Seen, what: What, evidence: str) -> None:
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
        runtime(
            stated={**OURS, "kata": "/usr/bin/kata"}, reported={**OURS, "kata": "/usr/bin/kata"}
        ),  # somebody else's handler
        replace(GOOD, runtimes=()),
    ],
)
def test_looks_without_a_finding(seen: Seen) -> None:
    assert look(seen) == ()


def test_nothing_is_compared_with_what_was_not_there() -> None:
    assert look(replace(GOOD, installed=HERE), baseline=Installed()) == ()


def test_a_finding_keeps_its_age_while_its_evidence_changes() -> None:
    before = look(spec("one"))
    (found,) = look(spec("two"), before=before, now=NOON + 60)
    assert (found.since, found.evidence) == (NOON, ("two",))


def test_a_change_under_way_hides_what_follows_from_it() -> None:
    found = look(runtime(unfinished="it ended", files=CHANGED, stated={}, reported=None))
    assert [finding.what for finding in found] == ["change-unfinished"]


def test_a_new_driver_is_the_one_to_compare_with_once_its_spec_is_right() -> None:
    new = replace(HERE, driver="595.1.1")
    stale = replace(spec("the driver's version changed"), installed=new)
    assert accepted(stale, HERE) == HERE
    assert accepted(replace(GOOD, installed=new), HERE) == new
    assert accepted(replace(GOOD, installed=replace(new, driver="")), HERE) == HERE
    assert accepted(replace(GOOD, installed=replace(HERE, release="other")), HERE).release == HERE.release


DRIFT = look(runtime(reported={"runc": ""}))
STALE = look(spec("old"))
LATER = NOON + NOTICE


@pytest.mark.parametrize(
    ("found", "policy", "past", "now", "kinds"),
    [
        ((), Policy(reapply=True), Past(), NOON, []),
        (DRIFT, Policy(), Past(), NOON, []),  # report only is the default
        (DRIFT, Policy(), Past(announced=NOON - 9999), NOON, []),
        (DRIFT, Policy(reapply=True), Past(), NOON, [Announce]),  # never without saying so before
        (DRIFT, Policy(reapply=True), Past(announced=NOON), LATER - 1, []),
        (DRIFT, Policy(reapply=True), Past(announced=NOON), LATER, [Reapply]),
        (DRIFT, Policy(reapply=True), Past(announced=NOON, tried=LATER - HOLD + 1), LATER, []),  # two tools that overwrite each other
        (DRIFT, Policy(reapply=True), Past(announced=NOON, tried=LATER - HOLD), LATER, [Reapply]),
        (DRIFT, Policy(reapply=True), Past(announced=NOON, tried=LATER - HOLD, failed=evidence_of(DRIFT)), LATER, []),
        (DRIFT, Policy(reapply=True), Past(announced=NOON, tried=LATER - HOLD_FAILED, failed=evidence_of(DRIFT)), LATER, [Reapply]),
        # somebody has repaired what the daemon refused; something else is wrong now
        (DRIFT, Policy(reapply=True), Past(announced=NOON, tried=LATER - HOLD, failed=("line 3: what?",)), LATER, [Reapply]),
        (look(runtime(files=CHANGED)), Policy(reapply=True), Past(announced=NOON), LATER, []),  # an edit that leaves our part alone
        (look(runtime(reported=None)), Policy(reapply=True), Past(announced=NOON), LATER, []),  # a daemon that is down is a person's
        (STALE, Policy(), Past(), NOON, [Regenerate]),
        (STALE, Policy(regenerate=False), Past(), NOON, []),
        (STALE + DRIFT, Policy(reapply=True), Past(announced=NOON), LATER, [Regenerate, Reapply]),
    ],
)  # fmt: skip
def test_what_is_done(found: Findings, policy: Policy, past: Past, now: float, kinds: list[type]) -> None:
    assert [type(action) for action in decide(found, policy, past, now, driver="580.65.06")] == kinds


def test_no_spec_is_written_without_a_driver() -> None:
    assert decide(STALE, Policy(), Past(), NOON, driver="") == ()


def test_a_window_is_kept_to() -> None:
    """1,000,000,000 is a Sunday, 01:46:40."""
    policy = Policy(reapply=True, windows=parse(["Sun 03:00-04:00"]))
    opens = NOON - 6400 + 3 * 3600
    (announced,) = decide(DRIFT, policy, Past(), NOON, driver="")
    assert isinstance(announced, Announce)
    assert announced.at == opens
    past = Past(announced=NOON)
    assert decide(DRIFT, policy, past, opens - 1, driver="") == ()
    assert [type(action) for action in decide(DRIFT, policy, past, opens, driver="")] == [Reapply]
    assert decide(DRIFT, policy, past, opens + 3600, driver="") == ()
