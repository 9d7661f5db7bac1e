"""What the doctor found, as text for people and as JSON."""

from __future__ import annotations

from driverforge_toolkit.doctor.evidence import NodeEvidence
from driverforge_toolkit.doctor.rules import RULES, KnownProblem, looked_at


def as_text(found: tuple[KnownProblem, ...], evidence: NodeEvidence) -> str:
    return f"{_findings(found)}\n\nlooked at: {'; '.join(looked_at(evidence))}"


def _findings(found: tuple[KnownProblem, ...]) -> str:
    if not found:
        return f"nothing found: none of {len(RULES)} known problems shows on this node"
    parts = []
    for one in found:
        lines = [f"{one.rule.id}: {one.diagnosis.what}", *(f"  | {line}" for line in one.diagnosis.evidence)]
        lines.append(f"  next: {one.diagnosis.command}")
        if one.rule.issues:
            lines.append(f"  see:  {', '.join(one.rule.issues)}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def as_document(found: tuple[KnownProblem, ...], evidence: NodeEvidence) -> dict[str, object]:
    """For --json; keys stay."""
    return {
        "schema": 1,
        "rules": len(RULES),
        "looked_at": list(looked_at(evidence)),
        "found": [
            {
                "id": one.rule.id,
                "what": one.diagnosis.what,
                "evidence": list(one.diagnosis.evidence),
                "next": one.diagnosis.command,
                "issues": list(one.rule.issues),
            }
            for one in found
        ],
    }
