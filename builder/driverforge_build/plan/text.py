"""A plan as people and programs read it: a table, a summary, JSON. Text is made when somebody reads it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from driverforge_build.advice import Given
from driverforge_build.lock.pins import Lock, LockedKernel, TargetLock
from driverforge_build.matrix.expand import Cell
from driverforge_build.plan.classes import kernel_classes, summary_lines
from driverforge_build.plan.rows import Plan, Planned
from driverforge_build.verdict.verdicts import State, source_of
from driverforge_core.printable import printable

if TYPE_CHECKING:
    from driverforge_build.documents.plans import (
        ClassOfKernels,
        PinnedPackage,
        PlanCell,
        PlanInputs,
        PlanTarget,
    )


def table(plan: Plan, *, style: Callable[[str, State], str] = lambda text, _: text) -> Iterator[str]:
    """The lines of a plan's table, fit for a terminal. `style` decorates a verdict of fixed width."""
    widest = max((len(row.key) for row in plan.rows), default=0)
    for row in plan.rows:
        verdict = row.verdict
        told = style(f"{verdict.state.value:<7}", verdict.state)
        yield f"{printable(row.key):<{widest}}  {told}  {printable(verdict.reason)}"


def summary(plan: Plan) -> list[str]:
    """The lines below the table: counts, what to run for unknown cells, and warnings, each once."""
    counts = plan.count()
    told = ", ".join(f"{counts[state]} {state}" for state in State if counts[state])
    lines = [f"{_cells(len(plan.rows))}: {told or 'none'}"]
    runs = Counter(row.verdict.run for row in plan.rows if row.verdict.run)
    lines += [f"unknown ({_cells(count)}), to run: {run}" for run, count in runs.items()]
    warnings = Counter(warning for row in plan.rows for warning in row.verdict.warnings)
    return lines + [f"warning ({_cells(count)}): {warning}" for warning, count in warnings.items()]


def classes(plan: Plan, lock: Lock, given: Given) -> Iterator[str]:
    """The lines below the summary: which kernels of the plan's systems are of one class."""
    found = (lock.target(row.cell.os.id, row.cell.arch) for row in plan.rows)
    for target in {target.key: target for target in found if target}.values():
        yield from summary_lines(target, given)


def documents(plan: Plan) -> Iterator[PlanCell]:
    """One JSON object a row."""
    for row in plan.rows:
        cell, verdict = row.cell, row.verdict
        yield {
            "cell": row.key,
            "os": cell.os.id,
            "arch": cell.arch,
            "driver": cell.driver.version,
            "branch": cell.driver.branch,
            "kernel": cell.kernel.text if cell.kernel else None,
            "module_types": list(cell.module_types),
            "left_out": dict(verdict.left_out),
            "source": source_of(cell).value,
            "verdict": verdict.state.value,
            "reason": verdict.reason,
            "evidence": list(verdict.evidence),
            "run": verdict.run,
            "image": verdict.image,
            "digest": verdict.digest,
            "packages": list(verdict.packages),
            "warnings": list(verdict.warnings),
        }


def json_lines(plan: Plan, lock: Lock, *, given: Given, made: datetime) -> Iterator[str]:
    """The plan as one JSON document, a row a line, so that it can be written while it is made."""
    matrix = str(given.matrix) if given.matrix else None
    inputs: PlanInputs = {"matrix": matrix, "lock": str(given.lock), "bases": dict(given.bases)}
    yield f'{{"schema": 1, "made": "{made:%Y-%m-%dT%H:%M:%SZ}", "inputs": {json.dumps(inputs)}, "cells": ['
    rows: Sequence[Planned] = plan.rows
    for number, document in enumerate(documents(plan), start=1):
        yield json.dumps(document) + ("," if number < len(rows) else "")
    counts = plan.count()
    yield f'], "targets": {json.dumps(targets(plan, lock))},'
    yield f'"summary": {json.dumps({state.value: counts[state] for state in State})}}}'


def targets(plan: Plan, lock: Lock) -> dict[str, PlanTarget]:
    """What the lock has for a plan's cells, by OS and architecture."""
    found: dict[str, PlanTarget] = {}
    for row in plan.rows:
        cell = row.cell
        target = lock.target(cell.os.id, cell.arch) or TargetLock(os=cell.os.id, arch=cell.arch)
        if target.key not in found:
            found[target.key] = _target(cell, target)
        kernel = target.kernels.get(cell.kernel.text) if cell.kernel else None
        if kernel and kernel.release not in (kernels := found[target.key]["kernels"]):
            kernels[kernel.release] = list(_packages(kernel))
    return found


def _target(cell: Cell, target: TargetLock) -> PlanTarget:
    base = target.base
    return {
        "os": cell.os.id,
        "arch": cell.arch,
        "name": cell.os.name,
        "suites": [
            {"suite": one.suite, "date": one.date, "sha256": one.inrelease} for one in target.repositories
        ],
        "base": {"reference": base.reference, "digest": base.digest, "index": base.index} if base else None,
        "kernels": {},
        "classes": list(_classes(target)),
    }


def _classes(target: TargetLock) -> Iterator[ClassOfKernels]:
    for one in kernel_classes(target).found:
        yield {
            "kernels": list(one.kernels),
            "compiler": one.compiler,
            "headers": one.digests.files,
            "config": one.digests.config,
            "symvers": one.digests.symvers,
        }


def _packages(kernel: LockedKernel) -> Iterator[PinnedPackage]:
    for package in (*kernel.headers, *filter(None, [kernel.image])):
        yield {
            "name": package.name,
            "version": package.version,
            "suite": package.suite,
            "sha256": package.sha256,
        }


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"
