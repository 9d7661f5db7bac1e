"""`driverctl doctor`: look at a node, or at a copy of its files, and judge what is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from driverforge_core.errors import NotPermitted, UsageError
from driverforge_host.ports import Host, Sockets
from driverforge_toolkit.doctor import gather
from driverforge_toolkit.doctor.evidence import NodeEvidence
from driverforge_toolkit.doctor.rules import KnownProblem, examine


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was looked at, and the known problems that show, the worst first."""

    evidence: NodeEvidence
    problems: tuple[KnownProblem, ...]


def examine_node(
    host: Host, sockets: Sockets, *, dump: str, install_dir: str, logs: Sequence[str]
) -> Examination:
    """Examine the running node, or the files below `dump` where that is not ''.

    `install_dir` is the toolkit's folder on the node, `logs` are further files to read. Changes nothing.
    Raises UsageError for a file that is not there, NotPermitted without root on a running node.
    """
    missing = [path for path in (dump, *logs) if path and not host.files.exists(path)]
    if missing:
        raise UsageError(
            "there is no such file", details=missing, resolution="name a folder with --root, files with --log"
        )
    user = host.processes.effective_user()
    if user != 0 and not dump:
        raise NotPermitted(
            "looking at a node needs root",
            details=[f"effective user id {user}"],
            resolution="run it with sudo, or in a privileged pod with hostPID; "
            "for a copy of a node's files that you may read: --root DIR",
        )
    if dump:
        evidence = gather.of_dump(host, dump, install_dir=install_dir, logs=logs)
    else:
        evidence = gather.of_node(host, sockets, install_dir=install_dir, logs=logs)
    return Examination(evidence=evidence, problems=examine(evidence))
