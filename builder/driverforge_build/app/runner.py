"""Several builds at a time, and what became of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any

from driverforge_build.ports import BuildJob, BuiltImage, Engine
from driverforge_core.errors import DriverforgeError

CellListener = Callable[[str, str], None]
"""Is told a cell and what happens to it now."""


Finish = Callable[[Engine, BuildJob], BuiltImage | None]
"""Is called after a build, and returns the image where it is now. Raises as a build does."""


class Result(Enum):
    BUILT = "built"
    WRITTEN = "written"
    """The context; no image was to be made of it."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not begun, because another one failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellReport:
    """The outcome for one cell: `image` when built, `error` when failed; `seconds` of wall time."""

    cell: str
    result: Result
    reference: str
    log: Path
    seconds: float
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


def in_store(engine: Engine, job: BuildJob) -> BuiltImage | None:
    """The image in the engine's store."""
    return engine.inspect(job.reference)


def build_all(
    engines: Sequence[Engine],
    jobs: Sequence[BuildJob],
    *,
    workers: int,
    keep_going: bool,
    told: CellListener,
    finish: Finish = in_store,
) -> tuple[CellReport, ...]:
    """Build jobs, on each engine `workers` at a time. Without `keep_going` none begins after a failure.

    Each engine has its share from the start. The first job of each group in it goes before all others: when
    two builds that share a step begin at once, BuildKit runs that step twice.
    """
    stop = threading.Event()

    def one(engine: Engine, job: BuildJob) -> CellReport:
        report = _skipped(job) if stop.is_set() else _build(engine, job, told, finish)
        if report.error and not keep_going:
            stop.set()
        told(job.cell, report.result.value)
        return report

    def share(engine: Engine, mine: Sequence[BuildJob]) -> list[CellReport]:
        leaders: dict[str, BuildJob] = {}
        for job in mine:
            leaders.setdefault(job.group, job)
        with ThreadPoolExecutor(max_workers=workers) as pool:
            first = list(pool.map(one, repeat(engine), leaders.values()))
            led = {report.cell for report in first}
            return [*first, *pool.map(one, repeat(engine), (job for job in mine if job.cell not in led))]

    with ThreadPoolExecutor(max_workers=len(engines)) as pool:
        shared = pool.map(share, engines, shares(jobs, len(engines)))
        reports = {report.cell: report for done in shared for report in done}
    return tuple(reports[job.cell] for job in jobs)


def shares(jobs: Sequence[BuildJob], count: int) -> list[Sequence[BuildJob]]:
    """Jobs in `count` parts that differ by one at most.

    A group is cut where a part ends and nowhere else, so that few of its stages are built twice.
    """
    ordered = sorted(jobs, key=lambda job: job.group)
    ends = [len(ordered) * number // count for number in range(count + 1)]
    return [ordered[begin:end] for begin, end in pairwise(ends)]


def _skipped(job: BuildJob) -> CellReport:
    return CellReport(cell=job.cell, result=Result.SKIPPED, reference=job.reference, log=job.log, seconds=0.0)


def _build(engine: Engine, job: BuildJob, told: CellListener, finish: Finish) -> CellReport:
    started = time.monotonic()
    image, failure = None, None
    made = Result.BUILT if engine.makes_images else Result.WRITTEN
    try:
        engine.build(job, lambda text: told(job.cell, text))
        image = finish(engine, job) if engine.makes_images else None
    except DriverforgeError as error:
        failure = error
    return CellReport(
        cell=job.cell,
        result=Result.FAILED if failure else made,
        reference=job.remote or job.reference,
        log=job.log,
        seconds=time.monotonic() - started,
        image=image,
        error=failure,
    )
