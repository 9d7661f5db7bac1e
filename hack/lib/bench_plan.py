"""plan: does the plan of a hundred thousand cells cost more a cell than that of a hundred?"""

from __future__ import annotations

import dataclasses
import gc
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from itertools import count
from pathlib import Path

from bench_cpu import alternate
from bench_result import Measure, Series
from bench_workshop import Workshop
from driverforge_build import lock as locks
from driverforge_build import plan as plans
from driverforge_build.lock import HeaderFact, Lock, LockedKernel, TargetLock
from driverforge_build.matrix import Matrix, OsRow, load_matrix
from driverforge_build.probes import header_probe, question
from driverforge_build.verdict import Judge
from driverforge_core.kernel import KernelRelease
from support import process
from support.synthetic import release_of, synthetic_lock, synthetic_package

SYSTEM = "debian12"
_TODAY = date(2026, 1, 1)
_SAMPLE = 0.3  # seconds of CPU that one sample of the small plan shall take at least
# the number in a release that a distribution counts up: 6.1.0-[50]-cloud-amd64, 6.12.[95]+deb12-…
_COUNTED = re.compile(r"^(\d+\.\d+\.\d+-|\d+\.\d+\.(?=\d+\+))\d+")


def run(workshop: Workshop) -> tuple[Measure, ...]:
    small, large = workshop.sizes
    shipped = load_matrix(None)
    matrix = one_system(shipped)
    inputs = {cells: synthetic(matrix, cells) for cells in (small, large)}
    runs = workshop.runs or 5
    workshop.say(f"plans of {small} and {large} cells, {runs} times")
    repeats = max(1, round(_SAMPLE / (plan_cpu(matrix, inputs[small], 1) * small)))
    samples = [(plan_cpu(matrix, inputs[small], repeats), plan_cpu(matrix, inputs[large], 1)) for _ in range(runs)]
    in_process = Measure(
        what="CPU a cell",
        unit="s CPU",
        ours=Series(of=f"a cell of {large}", samples=tuple(pair[1] for pair in samples)),
        reference=Series(of=f"a cell of {small}", samples=tuple(pair[0] for pair in samples)),
    )
    counts = plans.make_plan(plans.all_cells(matrix, inputs[large]), Judge(matrix, inputs[large], today=_TODAY)).count()
    workshop.note(f"{large} cells: " + ", ".join(f"{number} {state}" for state, number in sorted(counts.items(), key=lambda item: str(item[0]))))
    return in_process, *processes(workshop, inputs, runs)


def plan_cpu(matrix: Matrix, lock: Lock, repeats: int) -> float:
    """Seconds of CPU a cell."""
    gc.collect()
    cells = 0
    began = time.process_time()
    for _ in range(repeats):
        judge = Judge(matrix, lock, today=_TODAY)  # anew: it remembers what it found for headers
        cells += len(plans.make_plan(plans.all_cells(matrix, lock), judge).rows)
    return (time.process_time() - began) / cells


def processes(workshop: Workshop, inputs: dict[int, Lock], runs: int) -> Iterator[Measure]:
    """`driverforge plan` from start to end, output included."""
    small, large = workshop.sizes
    with tempfile.TemporaryDirectory(prefix="driverforge-bench-") as name:
        commands = [[sys.executable, "-c", "pass"]]
        for cells, lock in inputs.items():
            file = Path(name) / f"{cells}.json"
            file.write_text(locks.dump(lock))
            program = "from driverforge_build.cli import main; main()"
            commands.append([sys.executable, "-c", program, "plan", "--lock", str(file), "--select", f"{SYSTEM}-*"])
            process.run(*commands[-1])  # where it fails, this says why
        bare, few, many = (tuple(samples) for samples in alternate(commands, runs))
    reference = Series(of=f"driverforge plan, {small} cells", samples=few)
    yield Measure(
        what="whole process",
        unit="s CPU",
        ours=Series(of=f"driverforge plan, {large} cells", samples=many),
        reference=reference,
    )
    yield Measure(what="start", unit="s CPU", ours=reference, reference=Series(of="python -c pass", samples=bare))


def one_system(matrix: Matrix) -> Matrix:
    """The shipped matrix with one system, every driver of which can be planned to the end (the matrix pins no runfile)."""
    row = next(row for row in matrix.rows if row.id == SYSTEM)
    pins = dict.fromkeys(row.archs, "0" * 64)
    drivers = tuple(driver.model_copy(update={"sha256": pins}) if driver.payload == "runfile" else driver for driver in row.drivers)
    return dataclasses.replace(matrix, rows=(row.model_copy(update={"drivers": drivers}),))


def synthetic(matrix: Matrix, cells: int) -> Lock:
    """A lock for at least `cells` cells, fewer than two kernels' worth more."""
    row = matrix.rows[0]
    targets = {arch: synthetic_lock(matrix).targets[f"{row.id}-{arch}"] for arch in row.archs}
    kernels = {arch: releases(row, arch) for arch in row.archs}
    facts = {question(header_probe(probe)): HeaderFact(breaks=False, found="made up") for probe in matrix.probes}
    drivers = len(row.drivers)
    rounds = max(1, (cells // drivers - len(row.archs)) // len(row.archs))
    return Lock().with_targets(
        with_kernels(target, [next(kernels[arch]) for _ in range(rounds)], facts) for arch, target in targets.items()
    )


def releases(row: OsRow, arch: str) -> Iterator[KernelRelease]:
    """Kernels of all series of a system, ever newer."""
    series = [release_of(line, arch).text for line in row.kernels if arch in line.flavours]
    for number in count(1):
        for text in series:
            yield KernelRelease.parse(_COUNTED.sub(rf"\g<1>{number}", text))


def with_kernels(target: TargetLock, kernels: list[KernelRelease], facts: dict[str, HeaderFact]) -> TargetLock:
    """The target with these kernels, each with headers of its own that were looked into."""
    suite = target.repositories[0].suite
    made, header_facts = {}, {}
    for release in kernels:
        headers = tuple(synthetic_package(f"linux-headers-{release}{part}", "1", target.arch, suite) for part in ("", "-common"))
        image = synthetic_package(f"linux-image-{release}", "1", target.arch, suite)
        made[release.text] = LockedKernel(release=release.text, flavour=release.flavour, compiler="gcc-12", headers=headers, image=image)
        header_facts[headers[1].key] = facts
    return dataclasses.replace(target, synthetic=False, kernels=made, header_facts=header_facts)
