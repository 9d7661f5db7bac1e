"""Several builds at a time, and what became of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Any

from driverforge_build.plan.times import BuildTime
from driverforge_build.ports import BuildJob, BuiltImage, Engine
from driverforge_build.render.toolkit import PREFIX
from driverforge_core.errors import DriverforgeError

CellListener = Callable[[str, str], None]
"""Is told a cell and what happens to it now."""


class Result(Enum):
    BUILT = "built"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not begun, because another one failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellReport:
    """The outcome for one cell: `image` when built, `error` when failed; `seconds` of wall time.

    `first`: it was the first of its group, and so made the layers that the others found.
    """

    cell: str
    result: Result
    reference: str
    log: Path
    seconds: float
    first: bool = False
    image: BuiltImage | None = None
    error: DriverforgeError | None = None

    def document(self) -> dict[str, Any]:
        """The report as JSON-able values."""
        image, error = self.image, self.error
        return {
            "cell": self.cell,
            "result": self.result.value,
            "reference": self.reference,
            "log": str(self.log),
            "seconds": round(self.seconds, 1),
            "id": image.id if image else None,
            "size": image.size if image else None,
            "layers": [
                {"digest": layer.digest, "size": layer.size, "created_by": layer.created_by}
                for layer in image.layers
            ]
            if image
            else [],
            "error": error.document() if error else None,
        }


def build_all(
    engine: Engine, jobs: Sequence[BuildJob], *, workers: int, keep_going: bool, told: CellListener
) -> tuple[CellReport, ...]:
    """Build jobs, `workers` at a time. Without `keep_going` no job begins after the first failure.

    The first job of each group goes before all others. When two builds that share a step begin at once,
    BuildKit runs that step twice.
    """
    stop = threading.Event()

    def one(job: BuildJob) -> CellReport:
        report = _skipped(job) if stop.is_set() else _build(engine, job, told)
        if report.error and not keep_going:
            stop.set()
        told(job.cell, report.result.value)
        return report

    leaders: dict[str, BuildJob] = {}
    for job in jobs:
        leaders.setdefault(job.group, job)
    with ThreadPoolExecutor(max_workers=workers) as pool:
        reports = {report.cell: replace(report, first=True) for report in pool.map(one, leaders.values())}
        reports |= {
            report.cell: report for report in pool.map(one, (job for job in jobs if job.cell not in reports))
        }
    return tuple(reports[job.cell] for job in jobs)


def build_times(reports: Iterable[CellReport]) -> dict[str, BuildTime]:
    """The times of driver images that were built now, for the next plan's shards."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        report.cell: BuildTime(seconds=report.seconds, first=report.first, date=now)
        for report in reports
        if report.result is Result.BUILT and not report.cell.startswith(PREFIX)
    }


def _skipped(job: BuildJob) -> CellReport:
    return CellReport(cell=job.cell, result=Result.SKIPPED, reference=job.reference, log=job.log, seconds=0.0)


def _build(engine: Engine, job: BuildJob, told: CellListener) -> CellReport:
    started = time.monotonic()
    image, failure = None, None
    try:
        engine.build(job, lambda text: told(job.cell, text))
        image = engine.inspect(job.reference)
    except DriverforgeError as error:
        failure = error
    return CellReport(
        cell=job.cell,
        result=Result.FAILED if failure else Result.BUILT,
        reference=job.reference,
        log=job.log,
        seconds=time.monotonic() - started,
        image=image,
        error=failure,
    )
