"""Several builds at a time, and what became of each.

A failure that passes is tried again, and only that: TemporaryFailure says that the same call may work later,
as where a registry answers 429 or 5xx, a mirror does not answer, or a connection broke. A compiler's error is
none, however often it is asked.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from functools import partial
from itertools import pairwise, repeat
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from driverforge_build.plan.times import BuildTime
from driverforge_build.ports import BuildJob, BuiltImage, Engine, StepListener
from driverforge_build.publish.upload import Publisher, PushReport, is_built
from driverforge_build.render.bake import local_reference
from driverforge_build.render.context import BuildContext
from driverforge_core.errors import DriverforgeError, TemporaryFailure
from driverforge_oci.presence import ASKED_AT_ONCE

if TYPE_CHECKING:
    from driverforge_build.attest.provenance import BuildSpan

T = TypeVar("T")

PAUSES_S = (10.0, 30.0, 60.0, 120.0)
"""Before the second attempt, the third, …; the last one before all further ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """An attempt that was followed by another one, and what it took."""

    reason: str
    seconds: float


@dataclass(slots=True, kw_only=True)
class Attempts:
    """Attempts at one cell, which `left` counts down: for its build and its push together."""

    left: int
    told: StepListener
    wait: Callable[[float], object] = time.sleep
    failed: list[FailedAttempt] = field(default_factory=list)

    def at(self, action: Callable[[], T]) -> T:
        """What the action returns. Raises what it raises: at once where trying again is no use."""
        while True:
            started = time.monotonic()
            try:
                return action()
            except TemporaryFailure as error:
                if self.left <= 0:
                    raise
                self.left -= 1
                pause = PAUSES_S[min(len(self.failed), len(PAUSES_S) - 1)]
                spent = time.monotonic() - started
                self.failed.append(FailedAttempt(reason=error.brief, seconds=spent))
                self.told(f"{error.brief}; again in {pause:.0f} s")
                self.wait(pause)


CellListener = Callable[[str, str], None]
"""Is told a cell and what happens to it now."""


class Result(Enum):
    BUILT = "built"
    EXISTS = "exists"
    """The registry has the image, made from these inputs."""
    FOUND = "found"
    """The engine had it already, of a run that ended before it pushed. It is pushed now."""
    WRITTEN = "written"
    """The context, or bare modules that others sign; no image was to be made."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not begun, because another one failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellReport:
    """The outcome for one cell: `image` when the engine has it, `error` when building or pushing failed.

    `seconds` is wall time, `first`: it was the first of its group, and so made the layers that the others
    found. `attempts` are those that failed for a passing reason. `log` is None where nothing was begun.
    """

    cell: str
    result: Result
    reference: str
    log: Path | None
    seconds: float
    first: bool = False
    image: BuiltImage | None = None
    pushed: PushReport | None = None
    attempts: tuple[FailedAttempt, ...] = ()
    error: DriverforgeError | None = None

    @property
    def lost(self) -> bool:
        """Whether the engine says that it built the image, and does not have it."""
        return self.result is Result.BUILT and self.image is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushing:
    """How images get to a registry as soon as they stand. `contexts` are what they are made from, by cell."""

    publisher: Publisher
    contexts: Mapping[str, BuildContext]


@dataclass(frozen=True, slots=True, kw_only=True)
class HowToRun:
    """`pushing` is None where images stay in the engine; `retries` are further attempts a cell. `prepare`
    does what has to be done right before an image is built, and gives the job that then is.
    """

    workers: int
    keep_going: bool
    pushing: Pushing | None = None
    retries: int = 0
    wait: Callable[[float], object] = time.sleep
    prepare: Callable[[Engine, BuildJob, StepListener], BuildJob] = lambda _engine, job, _told: job

    def build(self, engine: Engine, job: BuildJob, told: StepListener) -> str:
        return engine.build(self.prepare(engine, job, told), told)


def build_all(
    engines: Sequence[Engine], jobs: Sequence[BuildJob], how: HowToRun, told: CellListener
) -> tuple[CellReport, ...]:
    """Build and push, on each engine several at a time. Without `keep_going` none begins after a failure.

    Each engine has its share from the start. The first job of each group in it goes before all others: when
    two builds that share a step begin at once, BuildKit runs that step twice.
    """
    stop = threading.Event()

    def one(engine: Engine, job: BuildJob) -> CellReport:
        report = _skipped(job) if stop.is_set() else _life(engine, job, how, told)
        if report.error and not how.keep_going:
            stop.set()
        told(job.cell, report.result.value)
        return report

    def share(engine: Engine, mine: Sequence[BuildJob]) -> list[CellReport]:
        # two builders with the same cells in the same order would begin each of them at the same moment
        order = random.sample(mine, len(mine)) if how.pushing else mine
        leaders: dict[str, BuildJob] = {}
        for job in order:
            leaders.setdefault(job.group, job)
        others = [job for job in order if leaders[job.group] is not job]
        with ThreadPoolExecutor(max_workers=how.workers) as pool:
            first = pool.map(one, repeat(engine), leaders.values())
            led = [replace(report, first=True) for report in first]
            return [*led, *pool.map(one, repeat(engine), others)]

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


def confirm_all(
    existing: Sequence[tuple[BuildContext, str]], publisher: Publisher, *, retries: int
) -> tuple[CellReport, ...]:
    """Images that the registry has, and what their tags stand for.

    An earlier run may have ended before their aliases stood for them.
    """

    def one(there: tuple[BuildContext, str]) -> CellReport:
        context, digest = there
        attempts = Attempts(left=retries, told=lambda _: None)
        outcome = _Outcome(result=Result.EXISTS)
        try:
            outcome.pushed = attempts.at(partial(publisher.confirm, context, digest))
            _attest(publisher, context, attempts, outcome)
        except DriverforgeError as error:
            outcome.error, outcome.result = error, Result.FAILED
        return CellReport(
            cell=context.image.id,
            result=outcome.result,
            reference=local_reference(context),
            log=None,
            seconds=0.0,
            pushed=outcome.pushed,
            attempts=tuple(attempts.failed),
            error=outcome.error,
        )

    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return tuple(pool.map(one, existing))


def build_times(reports: Iterable[CellReport], compiled: Mapping[str, bool]) -> dict[str, BuildTime]:
    """The times of driver images that were built now, for the next plan's shards.

    `compiled` says of each driver image whether its modules are compiled; others are no measure for these.
    """
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        report.cell: BuildTime(
            seconds=report.seconds, first=report.first, date=now, compiled=compiled[report.cell]
        )
        for report in reports
        if report.result is Result.BUILT and not report.attempts and report.cell in compiled
    }


def _skipped(job: BuildJob) -> CellReport:
    return CellReport(cell=job.cell, result=Result.SKIPPED, reference=job.reference, log=None, seconds=0.0)


def _life(engine: Engine, job: BuildJob, how: HowToRun, told: CellListener) -> CellReport:
    """One cell, from the question whether it is there already to its image in the registry."""
    started = time.monotonic()

    def tell(text: str) -> None:
        told(job.cell, text)

    attempts = Attempts(left=how.retries, told=tell, wait=how.wait)
    outcome = _Outcome()
    try:
        if not engine.makes_images or job.output:
            attempts.at(partial(engine.build, job, tell))
            outcome.result = Result.WRITTEN
        elif how.pushing is None:
            attempts.at(partial(how.build, engine, job, tell))
            outcome.image = engine.inspect(job.reference)
        else:
            _build_and_push(engine, job, how, attempts, outcome)
    except DriverforgeError as error:
        outcome.error, outcome.result = error, Result.FAILED
    return CellReport(
        cell=job.cell,
        result=outcome.result,
        reference=job.remote or job.reference,
        log=job.log,
        seconds=time.monotonic() - started,
        image=outcome.image,
        pushed=outcome.pushed,
        attempts=tuple(attempts.failed),
        error=outcome.error,
    )


@dataclass(slots=True)
class _Outcome:
    """What is known of a cell so far; a failure leaves what was reached before it."""

    result: Result = Result.BUILT
    image: BuiltImage | None = None
    pushed: PushReport | None = None
    error: DriverforgeError | None = None


def _build_and_push(
    engine: Engine, job: BuildJob, how: HowToRun, attempts: Attempts, outcome: _Outcome
) -> None:
    """An image into the registry, and all that belongs to it there."""
    from driverforge_build.attest.provenance import BuildSpan

    assert how.pushing
    publisher, context = how.pushing.publisher, how.pushing.contexts[job.cell]
    started = datetime.now(timezone.utc)
    _to_registry(engine, job, how, attempts, outcome)
    built = BuildSpan(started=started, finished=datetime.now(timezone.utc))
    # of two builders that made the same image at the same time, one has sent it
    ours = outcome.result is Result.BUILT and outcome.pushed is not None and outcome.pushed.sent
    _attest(publisher, context, attempts, outcome, built if ours else None)


def _attest(
    publisher: Publisher,
    context: BuildContext,
    attempts: Attempts,
    outcome: _Outcome,
    built: BuildSpan | None = None,
) -> None:
    """What the image is to have attached; a failure leaves what was attached before it in the outcome."""
    pushed = outcome.pushed
    assert pushed is not None

    def once() -> None:
        for report in publisher.attest(context, pushed, built):
            outcome.pushed = report

    attempts.at(once)


def _to_registry(engine: Engine, job: BuildJob, how: HowToRun, attempts: Attempts, outcome: _Outcome) -> None:
    assert how.pushing
    publisher, context = how.pushing.publisher, how.pushing.contexts[job.cell]
    build = partial(how.build, engine, job, attempts.told)
    # another builder may have pushed it since the plan was made
    outcome.pushed = attempts.at(partial(publisher.pushed, context))
    if outcome.pushed:
        outcome.result = Result.EXISTS
        return
    if job.remote:
        digest = attempts.at(build)
        outcome.pushed, outcome.image = attempts.at(partial(publisher.from_builder, context, digest))
        return
    if not job.no_cache and is_built(engine, context):
        outcome.result = Result.FOUND
    else:
        attempts.at(build)
    outcome.image = engine.inspect(job.reference)
    outcome.pushed = attempts.at(partial(publisher.push, context, attempts.told))
