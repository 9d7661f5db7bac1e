"""From a look at the node to findings: what differs from what was put there, and since when. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum


class FindingKind(str, Enum):
    """What may differ; docs/watch.md explains each."""

    CONFIG_REWRITTEN = "config-rewritten"
    CONFIG_EDITED = "config-edited"
    DROP_IN_SHADOWS = "drop-in-shadows"
    HANDLERS_NOT_IN_FORCE = "handlers-not-in-force"
    RUNTIME_SILENT = "runtime-silent"
    CHANGE_UNFINISHED = "change-unfinished"
    PROGRAMS_MISSING = "programs-missing"
    SPEC_STALE = "spec-stale"
    DRIVER_REINSTALLED = "driver-reinstalled"
    RELEASE_SWITCHED = "release-switched"
    CANNOT_LOOK = "cannot-look"


class Cure(str, Enum):
    """What puts a finding right."""

    APPLY = "apply"  # another `driverctl runtime apply`
    CDI = "cdi"  # another CDI spec
    PERSON = "person"
    NONE = "none"  # it is news, and nothing is wrong with it


class FileState(str, Enum):
    """A file that driverctl wrote, as it is now."""

    AS_WRITTEN = "as written"
    CHANGED = "changed"
    GONE = "gone"


CURES: dict[FindingKind, Cure] = {
    FindingKind.CONFIG_REWRITTEN: Cure.APPLY,
    FindingKind.CONFIG_EDITED: Cure.NONE,
    FindingKind.DROP_IN_SHADOWS: Cure.APPLY,
    FindingKind.HANDLERS_NOT_IN_FORCE: Cure.APPLY,
    FindingKind.RUNTIME_SILENT: Cure.PERSON,
    FindingKind.CHANGE_UNFINISHED: Cure.APPLY,
    FindingKind.PROGRAMS_MISSING: Cure.PERSON,
    FindingKind.SPEC_STALE: Cure.CDI,
    FindingKind.DRIVER_REINSTALLED: Cure.NONE,
    FindingKind.RELEASE_SWITCHED: Cure.PERSON,
    FindingKind.CANNOT_LOOK: Cure.PERSON,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSeen:
    """A daemon that driverctl changed.

    `handlers` are ours by the journal, `stated` those of its files, `reported` those of the running process.
    """

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
        """Whether the running daemon has our handler. One that does not tell the program is believed."""
        return (
            self.reported is not None
            and name in self.reported
            and self.reported[name] in (self.handlers[name], None)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecSeen:
    """A CDI spec of NVIDIA's devices. `managed` says that the watch can write it again."""

    path: str
    managed: bool
    written: float  # seconds since the epoch, 0 where it is not there
    reasons: tuple[str, ...] = ()  # why it does not describe the node any more
    remedy: str = "the watch writes it again once the driver is there"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledState:
    """What was in force when somebody last looked.

    The driver's version, the identity of its root, and the toolkit's release.
    """

    driver: str = ""
    root: str = ""
    release: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One look at the node. `problems` are parts that could not be looked at, with the reason."""

    installed: InstalledState
    runtimes: tuple[RuntimeSeen, ...] = ()
    specs: tuple[SpecSeen, ...] = ()
    problems: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A difference: `what` it is, at which `subject` (a path or a daemon), and since when.

    `since` is when it was first seen, in seconds since the epoch.
    """

    what: FindingKind
    subject: str
    evidence: tuple[str, ...]
    remedy: str
    since: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        return self.what.value, self.subject

    @property
    def cure(self) -> Cure:
        return CURES[self.what]


Findings = tuple[Finding, ...]


def findings(seen: Observation, baseline: InstalledState, before: Findings, now: float) -> Findings:
    """All that differs. A finding that was there `before` keeps its `since`."""
    since = {finding.key: finding.since for finding in before}
    found = [*_runtimes(seen), *_specs(seen), *_installed(seen.installed, baseline), *_problems(seen)]
    return tuple(replace(finding, since=since.get(finding.key, now)) for finding in found)


def next_baseline(seen: Observation, baseline: InstalledState) -> InstalledState:
    """What the next look is compared with.

    Once its specs are right again, a new driver is the one to compare with. The release stays the first one.
    """
    settled = bool(seen.installed.driver) and not any(spec.reasons for spec in seen.specs if spec.managed)
    return (
        replace(seen.installed, release=baseline.release or seen.installed.release) if settled else baseline
    )


def _runtimes(seen: Observation) -> Iterator[Finding]:
    for runtime in seen.runtimes:
        if runtime.unfinished:
            yield Finding(
                what=FindingKind.CHANGE_UNFINISHED,
                subject=runtime.config,
                evidence=(runtime.unfinished,),
                remedy="driverctl runtime apply finishes it, driverctl runtime revert undoes it",
            )
            continue
        yield from _files(runtime)
        yield from _process(runtime)
        if runtime.missing:
            yield Finding(
                what=FindingKind.PROGRAMS_MISSING,
                subject=runtime.config,
                evidence=tuple(f"{path} is not there" for path in runtime.missing),
                remedy="driverctl toolkit install",
            )


def _files(runtime: RuntimeSeen) -> Iterator[Finding]:
    others = {path: state for path, state in runtime.files.items() if state is not FileState.AS_WRITTEN}
    told = tuple(
        f"{path} {'is gone' if state is FileState.GONE else 'was changed by somebody else'}"
        for path, state in others.items()
    )
    if runtime.stated is None:
        yield Finding(
            what=FindingKind.CONFIG_REWRITTEN,
            subject=runtime.config,
            evidence=(*told, *runtime.refusal),
            remedy=f"{runtime.kind} would not start with these files: repair them, "
            "then driverctl runtime apply",
        )
        return
    lost = [name for name, program in runtime.handlers.items() if runtime.stated.get(name) != program]
    if lost or runtime.stripped:
        then = (
            f"would be without {', '.join(lost)} after its next restart"
            if lost
            else "is without our handlers when its root file is made again"
        )
        yield Finding(
            what=FindingKind.CONFIG_REWRITTEN,
            subject=runtime.config,
            evidence=(*told, f"{runtime.kind} {then}"),
            remedy="driverctl runtime apply",
        )
    elif others:
        remedy = "nothing: our handlers are still in it; a revert keeps the edit"
        yield Finding(what=FindingKind.CONFIG_EDITED, subject=runtime.config, evidence=told, remedy=remedy)
    if runtime.shadowed and not lost:
        remedy = "driverctl runtime apply, which copies the section again"
        yield Finding(
            what=FindingKind.DROP_IN_SHADOWS, subject=runtime.config, evidence=runtime.shadowed, remedy=remedy
        )


def _process(runtime: RuntimeSeen) -> Iterator[Finding]:
    if runtime.reported is None:
        remedy = f"journalctl -u {runtime.kind}; driverctl doctor"
        yield Finding(
            what=FindingKind.RUNTIME_SILENT, subject=runtime.config, evidence=runtime.silence, remedy=remedy
        )
        return
    gone = [name for name in runtime.handlers if not runtime.in_force(name)]
    if gone:
        said = ", ".join(sorted(runtime.reported)) or "no handlers"
        yield Finding(
            what=FindingKind.HANDLERS_NOT_IN_FORCE,
            subject=runtime.config,
            evidence=(f"the running {runtime.kind} does not have {', '.join(gone)}", f"it reports {said}"),
            remedy="driverctl runtime apply, which restarts it if that is needed",
        )


def _specs(seen: Observation) -> Iterator[Finding]:
    for spec in seen.specs:
        if spec.reasons:
            yield Finding(
                what=FindingKind.SPEC_STALE, subject=spec.path, evidence=spec.reasons, remedy=spec.remedy
            )


def _installed(now: InstalledState, before: InstalledState) -> Iterator[Finding]:
    evidence: tuple[str, ...] = ()
    if before.driver and now.driver != before.driver:
        evidence = (f"its version was {before.driver}, it is {now.driver or 'gone'}",)
    elif before.root and now.driver and now.root != before.root:
        evidence = (f"{now.driver} was installed again: its root is another folder or mount",)
    if evidence:
        yield Finding(
            what=FindingKind.DRIVER_REINSTALLED,
            subject="driver",
            evidence=evidence,
            remedy="nothing: the CDI specs are written again",
        )
    if before.release and now.release != before.release:
        yield Finding(
            what=FindingKind.RELEASE_SWITCHED,
            subject="toolkit",
            evidence=(f"{before.release} was in force, now {now.release or 'none of ours'}",),
            remedy="driverctl toolkit status; driverctl toolkit install puts it back",
        )


def _problems(seen: Observation) -> Iterator[Finding]:
    for subject, lines in seen.problems.items():
        yield Finding(
            what=FindingKind.CANNOT_LOOK,
            subject=subject,
            evidence=lines,
            remedy="repair what the message names; driverctl doctor",
        )
