"""What is told of one node: a table of its gates, and the sentence that it ends in."""

from __future__ import annotations

from collections.abc import Sequence

from driverforge_operator.explain.documents import ExplainDocument, FindingDocument
from driverforge_operator.explain.finding import Finding
from driverforge_operator.explain.gate import Gate, GateState
from driverforge_operator.explain.gates import closed, nothing_to_do

_EVIDENCE = 6  # lines that are shown
_LINE = 300  # characters of one: a refusal of the API server names every field


def sentence(node: str, found: Sequence[Gate]) -> str:
    """Which gate is closed, on which container, how its log ends, the likely cause, and what helps."""
    return "; ".join(_parts(node, found))


def _parts(node: str, found: Sequence[Gate]) -> list[str]:
    """What is seen, the likely cause and what to try; one text where there is no cause to tell."""
    gate = closed(tuple(found))
    if gate is None and nothing_to_do(found):
        return [f"Node {node} has no GPU: nothing to do."]
    if gate is None:
        return [f"Node {node} is ready: every gate is open."]
    if gate.state is GateState.UNREAD:
        return [f"Nobody can say whether node {node} is ready: at the gate '{gate.name}', {gate.told}."]
    if gate.finding is None:
        return [f"Node {node} waits at the gate '{gate.name}': {gate.told}."]
    finding = gate.finding
    where = f" on {finding.blocked}" if finding.blocked else ""
    last = f'; its log ends with "{_cut(finding.last)}"' if finding.last else ""
    return [
        f"Node {node} is not ready because the gate '{gate.name}' is closed{where}: {finding.what}{last}",
        f"likely cause: {_cut(finding.told)} [{finding.cause}]",
        f"try: {finding.command}",
    ]


def table(node: str, found: Sequence[Gate], unread: Sequence[str]) -> str:
    """The whole answer for a person."""
    rows = [(gate.name, gate.state.value, gate.told) for gate in found]
    lines = aligned([("GATE", "STATE", "WHAT IS SEEN"), *rows])
    gate = closed(tuple(found))
    evidence = gate.finding.evidence if gate and gate.finding else ()
    lines += ["", *(f"  | {_cut(line)}" for line in evidence[-_EVIDENCE:])] if evidence else []
    lines += ["", *(f"not read: {one}" for one in unread)] if unread else []
    seen, *advice = _parts(node, found)
    return "\n".join([*lines, "", seen, *(f"  {one}" for one in advice)])


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest entry; the last one as it is."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1])).rstrip()
        for row in rows
    ]


def document(node: str, found: Sequence[Gate], unread: Sequence[str]) -> ExplainDocument:
    """The same for programs."""
    gate = closed(tuple(found))
    return {
        "schema": 1,
        "node": node,
        "ready": gate is None,
        "sentence": sentence(node, found),
        "gates": [{"name": one.name, "state": one.state.name, "told": one.told} for one in found],
        "finding": finding_document(gate.name, gate.finding) if gate and gate.finding else None,
        "unread": list(unread),
    }


def finding_document(where: str, finding: Finding) -> FindingDocument:
    stuck = finding.blocked
    return {
        "where": where,
        "what": finding.what,
        "evidence": list(finding.evidence),
        "cause": finding.cause,
        "told": finding.told,
        "command": finding.command,
        "namespace": stuck.pod.metadata.namespace if stuck else "",
        "pod": stuck.pod.metadata.name if stuck else "",
        "container": stuck.container if stuck else "",
        "last_log_line": finding.last,
    }


def _cut(text: str) -> str:
    return text if len(text) <= _LINE else f"{text[:_LINE]}…"
