"""What the operator counts, in Prometheus' text format.

The names of NVIDIA's operator where they mean the same, so that its alerts and dashboards go on working.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from driverforge_kube import prometheus
from driverforge_kube.prometheus import Metric, Sample

_THEIRS = "gpu_operator_"
_OURS = "driverforge_operator_"

# name -> type, what it says
METRICS: Mapping[str, tuple[Literal["counter", "gauge", "summary"], str]] = {
    f"{_THEIRS}gpu_nodes_total": ("gauge", "Nodes with a GPU."),
    f"{_THEIRS}reconciliation_total": ("counter", "Rounds in which something was decided."),
    f"{_THEIRS}reconciliation_failed_total": ("counter", "Rounds in which a write failed."),
    f"{_THEIRS}reconciliation_status": (
        "gauge",
        "1: all are ready; 0: some are not; -1: no ClusterPolicy and no NVIDIADriver; -2: a write failed.",
    ),
    f"{_THEIRS}reconciliation_last_success_ts_seconds": ("gauge", "When a round last did all it had to."),
    f"{_THEIRS}reconciliation_has_nfd_labels": ("gauge", "1: some node has labels of its PCI devices."),
    f"{_OURS}nodes": ("gauge", "Nodes that are known."),
    f"{_OURS}leader": ("gauge", "1: this replica writes."),
    f"{_OURS}standing_down": ("gauge", "1: another operator runs, and nothing is written."),
    f"{_OURS}phase_seconds_total": ("counter", "Seconds by phase: take in, decide, write."),
    f"{_OURS}reconcile_seconds": ("summary", "Seconds of a round."),
    f"{_OURS}queue": ("gauge", "Changes that were told and not taken in yet."),
    f"{_OURS}waiting_actions": ("gauge", "Writes that failed and are tried again."),
    f"{_OURS}waiting_images": ("gauge", "Images of which no registry has said yet whether it has them."),
    f"{_OURS}failures_total": ("counter", "Writes that failed, by the kind of failure."),
    f"{_OURS}requests_total": ("counter", "Requests that the API server answered, by verb, kind, status."),
    "process_cpu_seconds_total": ("counter", "Processor time of this process."),
    "process_resident_memory_bytes": ("gauge", "Memory of this process."),
    "process_start_time_seconds": ("gauge", "When this process began."),
}
_Series = tuple[str, tuple[tuple[str, str], ...]]


class Metrics:
    """Any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[_Series, float] = {}
        self.set("process_start_time_seconds", time.time())

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        key = _series(name, labels)
        with self._lock:
            self._values[key] = self._values.get(key, 0) + amount

    def set(self, name: str, value: float, **labels: str) -> None:
        with self._lock:
            self._values[_series(name, labels)] = value

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the seconds of a phase."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(f"{_OURS}phase_seconds_total", time.perf_counter() - began, phase=name)

    def answered(self, method: str, path: str, status: int) -> None:
        """Count a request to the API server by what it was about, never by a name."""
        # the server's groups and their kinds have no kind
        words = path.strip("/").split("/")[2 if path.startswith("/api/") else 3 :] or ["discovery"]
        if words[0] == "namespaces" and len(words) > 2:
            words = words[2:]
        self.add(f"{_OURS}requests_total", verb=method.lower(), kind=words[0], code=str(status))

    def text(self) -> str:
        """All that was counted so far."""
        self.set("process_cpu_seconds_total", time.process_time())
        self.set("process_resident_memory_bytes", _resident())
        with self._lock:
            values = sorted(self._values.items())
        return prometheus.page(
            (
                Metric(name=name, kind=kind, about=told),
                [
                    Sample(value=value, labels=dict(labels), part=part)
                    for part in (("", "count", "sum") if kind == "summary" else ("",))
                    for (series, labels), value in values
                    if series == "_".join(filter(None, (name, part)))
                ],
            )
            for name, (kind, told) in METRICS.items()
        )


def _series(name: str, labels: Mapping[str, str]) -> _Series:
    return name, tuple(sorted(labels.items()))


def _resident() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
    return float(pages * os.sysconf("SC_PAGESIZE"))
