"""From a look at the node to findings: what differs from the evidence, and since when. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

What = Literal[
    "config-rewritten", "config-edited", "drop-in-shadows", "handlers-not-in-force", "runtime-silent", "change-unfinished",
    "programs-missing", "spec-stale", "driver-reinstalled", "release-switched", "cannot-look",
]  # fmt: skip
# what would put it right: another `runtime apply`, another CDI spec, only a person; or it is news, and nothing is wrong with it
Cure = Literal["apply", "cdi", "person", "none"]
FileState = Literal["as written", "changed", "gone"]

CURES: dict[What, Cure] = {
    "config-rewritten": "apply", "config-edited": "none", "drop-in-shadows": "apply", "handlers-not-in-force": "apply",
    "runtime-silent": "person", "change-unfinished": "apply", "programs-missing": "person", "spec-stale": "cdi",
    "driver-reinstalled": "none", "release-switched": "person", "cannot-look": "person",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSeen:
    """A daemon that driverctl changed. `handlers` are ours by the journal, `stated` those of its files, `reported` those of the process."""

    kind: str
    config: str
    handlers: Mapping[str, str]
    files: Mapping[str, FileState]
    stated: Mapping[str, str] | None  # None: the daemon's program does not accept the files
    refusal: tuple[str, ...] = ()  # its words on that
    reported: Mapping[str, str | None] | None  # None: nobody answers
    silence: tuple[str, ...] = ()
    shadowed: tuple[str, ...] = ()  # settings of other files that our drop-in's copy hides, a line each
    stripped: tuple[str, ...] = ()  # templates of its root file (k3s, rke2) that lost our section
    missing: tuple[str, ...] = ()  # programs of our handlers that are not on the node
    unfinished: str = ""  # why the journal's change is not a finished one

    def in_force(self, name: str) -> bool:
        """Whether the running daemon has our handler; one that tells no programs is believed."""
        return (
            self.reported is not None
            and name in self.reported
            and self.reported[name] in (self.handlers[name], None)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecSeen:
    """A CDI spec of NVIDIA's. `managed`: the watch can write it anew."""

    path: str
    managed: bool
    written: float  # seconds since the epoch, 0 where it is not there
    reasons: tuple[str, ...] = ()  # why it does not describe the node any more
    remedy: str = "the watch writes it anew once the driver is there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What was in force when somebody last had a look at it: driver version, identity of its root, release of the toolkit."""

    driver: str = ""
    root: str = ""
    release: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look at the node. `problems` are parts that could not be looked at, with the reason."""

    installed: Installed
    runtimes: tuple[RuntimeSeen, ...] = ()
    specs: tuple[SpecSeen, ...] = ()
    problems: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`what` differs at `subject` (a path, a daemon); `since` is when it was first seen, in seconds since the epoch."""

    what: What
    subject: str
    evidence: tuple[str, ...]
    remedy: str
    since: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        return self.what, self.subject

    @property
    def cure(self) -> Cure:
        return CURES[self.what]


Findings = tuple[Finding, ...]


def findings(seen: Seen, baseline: Installed, before: Findings, now: float) -> Findings:
    """All that differs. One that was there `before` keeps its `since`."""
    since = {finding.key: finding.since for finding in before}
    found = [*_runtimes(seen), *_specs(seen), *_installed(seen.installed, baseline), *_problems(seen)]
    return tuple(replace(finding, since=since.get(finding.key, now)) for finding in found)


def accepted(seen: Seen, baseline: Installed) -> Installed:
    """The baseline of the next look: a driver whose specs are right again is the one to compare with from now on."""
    settled = bool(seen.installed.driver) and not any(spec.reasons for spec in seen.specs if spec.managed)
    return (
        replace(seen.installed, release=baseline.release or seen.installed.release) if settled else baseline
    )


def _runtimes(seen: Seen) -> Iterator[Finding]:
    for runtime in seen.runtimes:
        if runtime.unfinished:
            yield Finding(
                what="change-unfinished", subject=runtime.config, evidence=(runtime.unfinished,),
                remedy="driverctl runtime apply finishes it, driverctl runtime revert undoes it",
            )  # fmt: skip
            continue
        yield from _files(runtime)
        yield from _process(runtime)
        if runtime.missing:
            yield Finding(
                what="programs-missing", subject=runtime.config, evidence=tuple(f"{path} is not there" for path in runtime.missing),
                remedy="driverctl toolkit install",
            )  # fmt: skip


def _files(runtime: RuntimeSeen) -> Iterator[Finding]:
    others = {path: state for path, state in runtime.files.items() if state != "as written"}
    told = tuple(
        f"{path} {'is gone' if state == 'gone' else 'was changed by somebody else'}"
        for path, state in others.items()
    )
    if runtime.stated is None:
        yield Finding(
            what="config-rewritten", subject=runtime.config, evidence=(*told, *runtime.refusal),
            remedy=f"{runtime.kind} would not start with these files: repair them, then driverctl runtime apply",
        )  # fmt: skip
        return
    lost = [name for name, program in runtime.handlers.items() if runtime.stated.get(name) != program]
    if lost:
        evidence = (*told, f"{runtime.kind} would be without {', '.join(lost)} after its next restart")
        yield Finding(
            what="config-rewritten",
            subject=runtime.config,
            evidence=evidence,
            remedy="driverctl runtime apply",
        )
    elif runtime.stripped:
        evidence = (*told, f"{runtime.kind} is without our handlers when its root file is made again")
        yield Finding(
            what="config-rewritten",
            subject=runtime.config,
            evidence=evidence,
            remedy="driverctl runtime apply",
        )
    elif others:
        remedy = "nothing: our handlers are still in it; a revert keeps the edit"
        yield Finding(what="config-edited", subject=runtime.config, evidence=told, remedy=remedy)
    if runtime.shadowed and not lost:
        remedy = "driverctl runtime apply, which copies the section anew"
        yield Finding(
            what="drop-in-shadows", subject=runtime.config, evidence=runtime.shadowed, remedy=remedy
        )


def _process(runtime: RuntimeSeen) -> Iterator[Finding]:
    if runtime.reported is None:
        remedy = f"journalctl -u {runtime.kind}; driverctl doctor"
        yield Finding(what="runtime-silent", subject=runtime.config, evidence=runtime.silence, remedy=remedy)
        return
    gone = [name for name in runtime.handlers if not runtime.in_force(name)]
    if gone:
        said = ", ".join(sorted(runtime.reported)) or "no handlers"
        yield Finding(
            what="handlers-not-in-force", subject=runtime.config,
            evidence=(f"the running {runtime.kind} does not have {', '.join(gone)}", f"it reports {said}"),
            remedy="driverctl runtime apply, which restarts it if that is needed",
        )  # fmt: skip


def _specs(seen: Seen) -> Iterator[Finding]:
    for spec in seen.specs:
        if spec.reasons:
            yield Finding(what="spec-stale", subject=spec.path, evidence=spec.reasons, remedy=spec.remedy)


def _installed(now: Installed, before: Installed) -> Iterator[Finding]:
    evidence: tuple[str, ...] = ()
    if before.driver and now.driver != before.driver:
        evidence = (f"its version was {before.driver}, it is {now.driver or 'gone'}",)
    elif before.root and now.driver and now.root != before.root:
        evidence = (f"{now.driver} was installed again: its root is another folder or mount",)
    if evidence:
        yield Finding(
            what="driver-reinstalled",
            subject="driver",
            evidence=evidence,
            remedy="nothing: CDI specs are written anew",
        )
    if before.release and now.release != before.release:
        yield Finding(
            what="release-switched", subject="toolkit", evidence=(f"{before.release} was in force, now {now.release or 'none of ours'}",),
            remedy="driverctl toolkit status; driverctl toolkit install puts it back",
        )  # fmt: skip


def _problems(seen: Seen) -> Iterator[Finding]:
    for subject, lines in seen.problems.items():
        yield Finding(
            what="cannot-look",
            subject=subject,
            evidence=lines,
            remedy="repair what the message names; driverctl doctor",
        )
