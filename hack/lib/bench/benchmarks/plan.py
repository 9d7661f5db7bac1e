"""plan: does the plan of a hundred thousand cells cost more a cell than that of a hundred?"""

from __future__ import annotations

import dataclasses
import gc
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import count, islice
from pathlib import Path

from bench.cpu import alternate, peak_of
from bench.result import Measure, Series
from bench.workshop import Workshop
from driverforge_build.lock.file import dump_lock
from driverforge_build.lock.pins import HeaderFact, Lock, LockedKernel, TargetLock
from driverforge_build.matrix import Matrix, OsRow, load_matrix
from driverforge_build.matrix.probes import header_probe, question
from driverforge_build.plan.rows import all_cells, make_plan
from driverforge_build.verdict.decide import Judge
from driverforge_build.verdict.verdicts import State
from driverforge_core.kernel import KernelRelease
from support import process
from support.samples.synthetic import release_of, synthetic_lock, synthetic_package

SYSTEM = "debian12"
_TODAY = date(2026, 1, 1)
_SAMPLE = 0.3  # seconds of CPU that one sample of the small plan shall take at least
# the number in a release that a distribution counts up: 6.1.0-[50]-cloud-amd64, 6.12.[95]+deb12-…
_COUNTED = re.compile(r"^(\d+\.\d+\.\d+-|\d+\.\d+\.(?=\d+\+))\d+")


def run(workshop: Workshop) -> tuple[Measure, ...]:
    matrix = one_system(load_matrix(None))
    few, many = (synthetic(matrix, cells) for cells in workshop.sizes)
    runs = workshop.runs or 5
    workshop.say(f"plans of {workshop.sizes[0]} and {workshop.sizes[1]} cells, {runs} times")
    repeats = max(1, round(_SAMPLE / plan_cpu(matrix, few, 1).seconds))
    small, large = zip(
        *((plan_cpu(matrix, few, repeats), plan_cpu(matrix, many, 1)) for _ in range(runs)), strict=True
    )
    in_process = Measure(
        what="CPU a cell",
        unit="s CPU",
        ours=Series(of=f"a cell of {large[0].cells}", samples=tuple(sample.a_cell for sample in large)),
        reference=Series(of=f"a cell of {small[0].cells}", samples=tuple(sample.a_cell for sample in small)),
    )
    counts = make_plan(all_cells(matrix, many), Judge(matrix, many, today=_TODAY)).count()
    workshop.note(
        f"{large[0].cells} cells: {', '.join(f'{counts[state]} {state}' for state in State if counts[state])}"
    )
    return in_process, *processes({small[0].cells: few, large[0].cells: many}, runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A plan made `repeats` times; `seconds` of CPU for each."""

    seconds: float
    cells: int

    @property
    def a_cell(self) -> float:
        return self.seconds / self.cells


def plan_cpu(matrix: Matrix, lock: Lock, repeats: int) -> Sample:
    """From matrix and lock to a plan."""
    gc.collect()
    cells = 0
    began = time.process_time()
    for _ in range(repeats):
        judge = Judge(matrix, lock, today=_TODAY)  # anew: it remembers what it found for headers
        cells = len(make_plan(all_cells(matrix, lock), judge).rows)
    return Sample(seconds=(time.process_time() - began) / repeats, cells=cells)


def processes(inputs: dict[int, Lock], runs: int) -> Iterator[Measure]:
    """`driverforge plan` and `build --plan` from start to end, output included."""
    small, large = inputs
    with tempfile.TemporaryDirectory(prefix="driverforge-bench-") as name:
        files = {cells: Path(name) / f"{cells}.json" for cells in inputs}
        for cells, lock in inputs.items():
            files[cells].write_text(dump_lock(lock))
        commands = [
            [sys.executable, "-c", "pass"],
            program(files[small], "plan"),
            program(files[large], "plan"),
            program(files[large], "build", "--plan"),
        ]
        for command in commands:
            process.run(*command)  # where it fails, this says why
        bare, few, many, built = (tuple(samples) for samples in alternate(commands, runs))
        peaks = [peak_of(command) for command in commands[2:]]
    reference = Series(of=f"driverforge plan, {small} cells", samples=few)
    yield Measure(
        what="whole process",
        unit="s CPU",
        ours=Series(of=f"driverforge plan, {large} cells", samples=many),
        reference=reference,
    )
    yield Measure(
        what="build --plan",
        unit="s CPU",
        ours=Series(of=f"driverforge build --plan, {large} cells", samples=built),
        reference=Series(of=f"driverforge plan, {large} cells", samples=many),
    )
    yield Measure(
        what="build --plan, memory",
        unit="bytes",
        ours=Series(of=f"driverforge build --plan, {large} cells", samples=(peaks[1],)),
        reference=Series(of=f"driverforge plan, {large} cells", samples=(peaks[0],)),
    )
    yield Measure(
        what="start", unit="s CPU", ours=reference, reference=Series(of="python -c pass", samples=bare)
    )


def program(lock: Path, *words: str) -> list[str]:
    """The command line of `driverforge` with a lock, for all cells of the one system."""
    start = "from driverforge_build.cli import main; main()"
    return [sys.executable, "-c", start, *words, "--lock", str(lock), "--select", f"{SYSTEM}-*"]


def one_system(matrix: Matrix) -> Matrix:
    """The shipped matrix with one system, every driver of which can be planned to the end.

    The matrix pins no runfile, so this one does.
    """
    row = next(row for row in matrix.rows if row.id == SYSTEM)
    pins = dict.fromkeys(row.archs, "0" * 64)
    drivers = tuple(
        driver.model_copy(update={"sha256": pins}) if driver.payload == "runfile" else driver
        for driver in row.drivers
    )
    return dataclasses.replace(matrix, rows=(row.model_copy(update={"drivers": drivers}),))


def synthetic(matrix: Matrix, cells: int) -> Lock:
    """A lock for about `cells` cells.

    Not every driver takes every series, so what one round of kernels makes is counted.
    """
    without, two = (sum(1 for _ in all_cells(matrix, _with_rounds(matrix, rounds))) for rounds in (0, 2))
    return _with_rounds(matrix, max(1, round(2 * (cells - without) / (two - without))))


def _with_rounds(matrix: Matrix, rounds: int) -> Lock:
    row = matrix.rows[0]
    targets = [synthetic_lock(matrix).targets[f"{row.id}-{arch}"] for arch in row.archs]
    return Lock().with_targets(
        with_kernels(target, list(islice(releases(row, target.arch), rounds)), matrix) for target in targets
    )


def releases(row: OsRow, arch: str) -> Iterator[KernelRelease]:
    """Kernels of all series of a system, ever newer."""
    series = [release_of(line, arch).text for line in row.kernels if arch in line.flavours]
    for number in count(1):
        for text in series:
            yield KernelRelease.parse(_COUNTED.sub(rf"\g<1>{number}", text))


def with_kernels(target: TargetLock, kernels: list[KernelRelease], matrix: Matrix) -> TargetLock:
    """The target with these kernels, each with headers of its own that were looked into.

    Every fourth kernel breaks some driver.
    """
    suite = target.repositories[0].suite
    questions = [question(header_probe(probe)) for probe in matrix.probes]
    made, facts = {}, {}
    for number, release in enumerate(kernels):
        headers = tuple(
            synthetic_package(f"linux-headers-{release}{part}", "1", target.arch, suite)
            for part in ("", "-common")
        )
        image = synthetic_package(f"linux-image-{release}", "1", target.arch, suite)
        made[release.text] = LockedKernel(
            release=release.text, flavour=release.flavour, compiler="gcc-12", headers=headers, image=image
        )
        facts[headers[1].key] = {
            asked: HeaderFact(breaks=number % 4 == 0, found="made up") for asked in questions
        }
    return dataclasses.replace(target, kernels=made, header_facts=facts)
