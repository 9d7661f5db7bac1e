"""driverctl doctor: known problems of the node's runtime, CDI specs and toolkit, each with its cure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from driverforge_host.adapters.sockets import UnixSockets
from driverforge_host.gpu import environment
from driverforge_toolkit.app.node_doctor import examine_node
from driverforge_toolkit.doctor.evidence import NodeEvidence
from driverforge_toolkit.doctor.rules import RULES, KnownProblem, looked_at

if TYPE_CHECKING:
    import argparse

    from driverforge_host.ports import Host


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument(
        "--root",
        metavar="DIR",
        default="",
        help="look at a copy of a node's files in DIR; no process is asked or started",
    )
    parser.add_argument(
        "--log", metavar="FILE", action="append", default=[], help="a log to look at, too; may be repeated"
    )
    parser.add_argument(
        "--toolkit-install-dir",
        metavar="DIR",
        default="",
        help="where the toolkit is on the node ($TOOLKIT_INSTALL_DIR); default: /usr/local/nvidia",
    )


def run(args: argparse.Namespace, host: Host) -> int:
    """Exit status 0: nothing found; 1: something was."""
    folder = (args.toolkit_install_dir or environment.install_dir(host.environ)).rstrip("/")
    found = examine_node(host, UnixSockets(), dump=args.root, install_dir=folder, logs=args.log)
    if args.json:
        print(json.dumps(as_document(found.problems, found.evidence), indent=2))
    else:
        print(as_text(found.problems, found.evidence))
    return 1 if found.problems else 0


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
