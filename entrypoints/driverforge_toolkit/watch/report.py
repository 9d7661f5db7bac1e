"""What the watch tells: a log line for each change, its part of status.json, and metrics for Prometheus."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Literal

from driverforge_core import log
from driverforge_host.ports import Files, text_of
from driverforge_kube.prometheus import Metric, Sample, page
from driverforge_toolkit.watch.findings import Findings, Observation

STATUS = "status.json"
METRICS = "metrics.prom"
KEY = "watch"  # status.json's other keys are those of `toolkit run`
EVENTS = 20  # the last ones stay in the status file
PREFIX = "driverforge_toolkit"
_Kind = Literal["counter", "gauge"]
_Family = tuple[Metric, list[Sample]]


class EventReason(str, Enum):
    """What happened, in the form of a Kubernetes Event's reason."""

    DRIFT_FOUND = "DriftFound"
    DRIFT_GONE = "DriftGone"
    REAPPLY_ANNOUNCED = "ReapplyAnnounced"
    REAPPLIED = "Reapplied"
    REAPPLY_FAILED = "ReapplyFailed"
    SPEC_WRITTEN = "SpecWritten"
    SPEC_FAILED = "SpecFailed"


# events for which somebody may have to do something
WARNINGS = (
    EventReason.DRIFT_FOUND,
    EventReason.REAPPLY_ANNOUNCED,
    EventReason.REAPPLY_FAILED,
    EventReason.SPEC_FAILED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """Something that happened, as a log line and as a Kubernetes Event show it.

    `time` is seconds since the epoch.
    """

    time: float
    reason: EventReason
    subject: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRecord:
    """Counters since the start, and the last events. `counts` maps (metric, label) to a number."""

    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    events: tuple[WatchEvent, ...] = ()

    def counted(self, metric: str, label: str) -> WatchRecord:
        """The record with one more of this."""
        return WatchRecord(
            counts={**self.counts, (metric, label): self.counts.get((metric, label), 0) + 1},
            events=self.events,
        )

    def counts_by_label(self, metric: str) -> dict[str, int]:
        return {label: number for (name, label), number in self.counts.items() if name == metric}

    def tell(self, event: WatchEvent) -> WatchRecord:
        """Log the event, and return the record with it."""
        write = log.warning if event.reason in WARNINGS else log.info
        write(event.reason.value, subject=event.subject, what=event.text)
        return WatchRecord(counts=self.counts, events=(*self.events, event)[-EVENTS:])


def record_changes(record: WatchRecord, before: Findings, after: Findings, now: float) -> WatchRecord:
    """Record what changed: a log line for each finding that is new, has other evidence or is gone.

    A finding that stays as it is gets no line.
    """
    old, new = ({finding.key: finding for finding in each} for each in (before, after))
    for key, finding in new.items():
        if key not in old:
            record = record.counted("findings_total", finding.what.value)
        if key not in old or old[key].evidence != finding.evidence:
            text = f"{finding.what.value}: {'; '.join(finding.evidence)}; next: {finding.remedy}"
            record = record.tell(
                WatchEvent(time=now, reason=EventReason.DRIFT_FOUND, subject=finding.subject, text=text)
            )
    for key, finding in old.items():
        if key not in new:
            record = record.tell(
                WatchEvent(
                    time=now, reason=EventReason.DRIFT_GONE, subject=finding.subject, text=finding.what.value
                )
            )
    return record


def status(
    findings: Findings, seen: Observation, record: WatchRecord, *, started: float, next_reapply: float | None
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
        "findings": [
            {**asdict(finding), "what": finding.what.value, "cure": finding.cure.value}
            for finding in findings
        ],
        "reapply_at": next_reapply,
        "events": [{**asdict(event), "reason": event.reason.value} for event in record.events],
    }


def write_status(files: Files, folder: str, part: Mapping[str, Any] | None) -> None:
    """Put our part into status.json, or take it out (None); a file of which nothing is left goes away."""
    path = f"{folder}/{STATUS}"
    try:
        whole = json.loads(text_of(files, path) or "{}")
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


def metrics(
    findings: Findings, seen: Observation, record: WatchRecord, *, looks: Mapping[str, int], now: float
) -> str:
    """Metrics for the node exporter's textfile collector or a sidecar."""
    current: dict[str, int] = {}
    for finding in findings:
        current[finding.what.value] = current.get(finding.what.value, 0) + 1
    families = [
        _family("findings", "gauge", "what differs now", "what", current),
        _family(
            "findings_total",
            "counter",
            "findings since the start of the watch",
            "what",
            record.counts_by_label("findings_total"),
        ),
        _family(
            "reapplies_total",
            "counter",
            "re-applies of the runtime's configuration",
            "result",
            record.counts_by_label("reapplies_total"),
        ),
        _family(
            "spec_writes_total",
            "counter",
            "CDI specs that the watch wrote again",
            "result",
            record.counts_by_label("spec_writes_total"),
        ),
        _handlers(seen),
        _family(
            "cdi_spec_age_seconds",
            "gauge",
            "since the CDI spec was written",
            "path",
            {spec.path: max(0, round(now - spec.written)) for spec in seen.specs if spec.written},
        ),
        _family(
            "cdi_spec_stale",
            "gauge",
            "1 for a CDI spec that does not describe the node",
            "path",
            {spec.path: int(bool(spec.reasons)) for spec in seen.specs},
        ),
        _family(
            "driver_info", "gauge", "the driver's version", "version", {seen.installed.driver or "none": 1}
        ),
        _family(
            "release_info",
            "gauge",
            "the toolkit's release in force",
            "release",
            {seen.installed.release or "none": 1},
        ),
        _family("looks_total", "counter", "looks at the node: stamps only, or whole", "kind", looks),
        _family(
            "last_look_timestamp_seconds", "gauge", "when the watch was alive last", "", {"": round(now)}
        ),
    ]
    return page(families)


def _handlers(seen: Observation) -> _Family:
    metric = _metric("handler_in_force", "gauge", "1 where the running daemon reports our handler")
    return metric, [
        Sample(
            value=runtime.in_force(name),
            labels={"runtime": runtime.kind, "config": runtime.config, "handler": name},
        )
        for runtime in seen.runtimes
        for name in runtime.handlers
    ]


def _family(name: str, kind: _Kind, text: str, label: str, values: Mapping[str, int]) -> _Family:
    samples = [
        Sample(value=number, labels={label: value} if label else {})
        for value, number in sorted(values.items())
    ]
    return _metric(name, kind, text), samples


def _metric(name: str, kind: _Kind, text: str) -> Metric:
    return Metric(name=f"{PREFIX}_{name}", kind=kind, about=text)
