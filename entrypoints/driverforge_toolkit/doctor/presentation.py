"""What the doctor found, as text for people, as JSON, and the page docs/doctor.md."""

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


def page() -> str:
    """docs/doctor.md, in full."""
    rows = [
        f"| `{rule.id}` | {rule.symptom} | {rule.cause} | {', '.join(rule.issues) or 'found by us'} |"
        for rule in RULES
    ]
    return "\n".join([_HEAD, *rows, _TAIL])


_HEAD = """\
# What is wrong with this node?

    driverctl doctor                    # on the node, or in a privileged pod with hostPID
    driverctl doctor --root DIR         # a copy of a node's files, as must-gather makes it
    driverctl doctor --json

The doctor looks for known problems of the container runtime, CDI specs and the toolkit. It prints each that
shows, with its evidence and the next command. It changes nothing; with `--root` it also asks no process and
starts no program. The last line says what there was to look at, and names a runtime that does not run.

Exit status 0: nothing was found; 1: something was; any other: the look failed (77: it needs root).

CDI specs of kinds that `driverctl cdi generate` does not write are left to the tool that wrote them.

In a dump, a file counts at its place below DIR: `etc/containerd`, `etc/crio`, `etc/docker`, `etc/cdi`,
`var/run/cdi`, `var/lib/rancher`, `var/lib/kubelet`, `var/lib/driverforge`, `usr/local/nvidia`, `run/nvidia`,
`proc/devices`, `sys/module/nvidia/version`, `var/log`. `--log FILE` adds a log from elsewhere
(`journalctl -u containerd > FILE`). What a dump cannot show is not judged: the handlers that the running
process has, device files, and links in /dev/char.

| id | what is seen | cause | upstream |
|---|---|---|---|"""
_TAIL = """
`toolkit` is NVIDIA/nvidia-container-toolkit, `dra` is NVIDIA/k8s-dra-driver-gpu. A running node can be
watched for the same problems: [watch.md](watch.md). `hack/environment-page` generates this page from
`entrypoints/driverforge_toolkit/doctor/rules.py`.
"""
