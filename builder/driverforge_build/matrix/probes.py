"""Header probes: rows of the matrix as the questions that builder and node judge by."""

from __future__ import annotations

from driverforge_build.matrix.branches import Probe
from driverforge_core.headerprobe import HeaderProbe, ProbeRule


def header_probe(row: Probe) -> HeaderProbe:
    """The question that a matrix row asks."""
    return HeaderProbe(
        kind=row.kind, symbol=row.symbol, header=row.header, struct=row.struct, arguments=row.arguments
    )


def probe_rule(row: Probe) -> ProbeRule:
    """A matrix row with whom it concerns, as builder and node judge by it."""
    return ProbeRule(
        id=row.id,
        probe=header_probe(row),
        drivers=tuple(
            (int(target.branch), target.before or "", target.patched or "") for target in row.drivers
        ),
        module_types=row.module_types,
        since=tuple(map(int, row.since.split("."))) if row.since else (),
        reason=row.reason,
    )


def question(probe: HeaderProbe) -> str:
    """A probe as text, the key of its answer in the lock: a row that changes is another question."""
    number = "" if probe.arguments is None else f" {probe.arguments}"
    member = f" in struct {probe.struct}" if probe.struct else ""
    return f"{probe.header}: {probe.kind}{number} {probe.symbol}{member}"
