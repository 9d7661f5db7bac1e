"""What the watch tells: a log line for each change, the `watch` part of status.json, and metrics as Prometheus' text format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from driverforge_node import log
from driverforge_node.cdi.roots import read
from driverforge_node.host.ports import Files
from driverforge_node.watch.findings import Findings, Seen

STATUS = "status.json"
METRICS = "metrics.prom"
KEY = "watch"  # status.json's other keys are those of `toolkit run`
EVENTS = 20  # the last ones stay in the status file
PREFIX = "driverforge_toolkit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened, for whoever shows it elsewhere (a Kubernetes Event). `time` is in seconds since the epoch."""

    time: float
    reason: str  # 'DriftFound', 'DriftGone', 'ReapplyAnnounced', 'Reapplied', 'ReapplyFailed', 'SpecWritten', 'SpecFailed'
    subject: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Counters since the start, and the last events. `counts` maps (metric, label) to a number."""

    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    events: tuple[Event, ...] = ()

    def counted(self, metric: str, label: str) -> Account:
        return Account(
            counts={**self.counts, (metric, label): self.counts.get((metric, label), 0) + 1},
            events=self.events,
        )

    def labelled(self, metric: str) -> dict[str, int]:
        return {label: number for (name, label), number in self.counts.items() if name == metric}

    def told(self, event: Event) -> Account:
        tell = log.warning if event.reason.endswith(("Found", "Failed", "Announced")) else log.info
        tell(event.reason, subject=event.subject, what=event.text)
        return Account(counts=self.counts, events=(*self.events, event)[-EVENTS:])


def changes(account: Account, before: Findings, after: Findings, now: float) -> Account:
    """One line for each finding that is new, has other evidence or is gone: never one a tick."""
    old, new = ({finding.key: finding for finding in each} for each in (before, after))
    for key, finding in new.items():
        if key not in old:
            account = account.counted("findings_total", finding.what)
        if key not in old or old[key].evidence != finding.evidence:
            text = f"{finding.what}: {'; '.join(finding.evidence)}; next: {finding.remedy}"
            account = account.told(Event(time=now, reason="DriftFound", subject=finding.subject, text=text))
    for key, finding in old.items():
        if key not in new:
            account = account.told(
                Event(time=now, reason="DriftGone", subject=finding.subject, text=finding.what)
            )
    return account


def status(
    findings: Findings, seen: Seen, account: Account, *, started: float, next_reapply: float | None
) -> dict[str, Any]:
    """The `watch` part of the status file; nothing in it changes while nothing on the node does."""
    return {
        "since": round(started, 3),
        "driver": seen.installed.driver,
        "release": seen.installed.release,
        "handlers": {
            runtime.config: {name: runtime.in_force(name) for name in runtime.handlers}
            for runtime in seen.runtimes
        },
        "specs": {spec.path: round(spec.written, 3) for spec in seen.specs},
        "findings": [{**asdict(finding), "cure": finding.cure} for finding in findings],
        "reapply_at": next_reapply,
        "events": [asdict(event) for event in account.events],
    }


def write_status(files: Files, folder: str, part: Mapping[str, Any] | None) -> None:
    """Put our part into status.json, or take it out (None); a file of which nothing is left goes away."""
    path = f"{folder}/{STATUS}"
    try:
        whole = json.loads(read(files, path) or "{}")
    except ValueError:
        whole = {}
    whole = {key: value for key, value in whole.items() if key != KEY} if isinstance(whole, dict) else {}
    if part is not None:
        whole[KEY] = part
    if whole:
        files.make_dirs(folder)
        files.write_atomic(path, (json.dumps(whole, indent=2) + "\n").encode(), mode=0o644)
    else:
        files.remove(path)


def write_metrics(files: Files, folder: str, text: str) -> None:
    files.make_dirs(folder)
    files.write_atomic(f"{folder}/{METRICS}", text.encode(), mode=0o644)


def metrics(findings: Findings, seen: Seen, account: Account, *, looks: Mapping[str, int], now: float) -> str:
    """Prometheus' text format (prometheus.io, "Exposition formats"), for the node exporter's textfile collector or a sidecar."""
    current: dict[str, int] = {}
    for finding in findings:
        current[finding.what] = current.get(finding.what, 0) + 1
    parts = [
        *_family("findings", "gauge", "what differs now", "what", current),
        *_family("findings_total", "counter", "findings since the start of the watch", "what", account.labelled("findings_total")),
        *_family("reapplies_total", "counter", "re-applies of the runtime's configuration", "result", account.labelled("reapplies_total")),
        *_family("spec_writes_total", "counter", "CDI specs that the watch wrote anew", "result", account.labelled("spec_writes_total")),
        *_handlers(seen),
        *_family("cdi_spec_age_seconds", "gauge", "since the CDI spec was written", "path",
            {spec.path: max(0, round(now - spec.written)) for spec in seen.specs if spec.written}),
        *_family("cdi_spec_stale", "gauge", "1 for a CDI spec that does not describe the node", "path",
            {spec.path: int(bool(spec.reasons)) for spec in seen.specs}),
        *_family("driver_info", "gauge", "the driver's version", "version", {seen.installed.driver or "none": 1}),
        *_family("release_info", "gauge", "the toolkit's release in force", "release", {seen.installed.release or "none": 1}),
        *_family("looks_total", "counter", "looks at the node: stamps only, or whole", "kind", looks),
        *_family("last_look_timestamp_seconds", "gauge", "when the watch was alive last", "", {"": round(now)}),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _handlers(seen: Seen) -> Iterator[str]:
    lines = [
        f"{PREFIX}_handler_in_force{{runtime={_label(runtime.kind)},config={_label(runtime.config)},handler={_label(name)}}} "
        f"{int(runtime.in_force(name))}"
        for runtime in seen.runtimes
        for name in runtime.handlers
    ]
    if lines:
        yield from _head("handler_in_force", "gauge", "1 where the running daemon reports our handler")
        yield from lines


def _family(name: str, kind: str, text: str, label: str, values: Mapping[str, int]) -> Iterator[str]:
    if not values:
        return
    yield from _head(name, kind, text)
    for value, number in sorted(values.items()):
        yield f"{PREFIX}_{name}{f'{{{label}={_label(value)}}}' if label else ''} {number}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {PREFIX}_{name} {text}"
    yield f"# TYPE {PREFIX}_{name} {kind}"


def _label(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
