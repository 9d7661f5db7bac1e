"""The status file, /run/nvidia/driverforge/status.json: for the startup probe, for people and for other programs on the node.

A top-level key a line: the probe reads `phase` and `pid` without a JSON parser.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from driverforge_node.driver import paths
from driverforge_node.driver.facts import Facts, Wanted
from driverforge_node.driver.plan import Done
from driverforge_node.driver.supervise import Supervised
from driverforge_node.host.ports import Host

SCHEMA = 1


def write(
    host: Host,
    *,
    phase: str,
    pid: int,
    facts: Facts,
    wanted: Wanted,
    done: Done | None = None,
    daemons: Sequence[Supervised] = (),
) -> None:
    """`phase`: 'starting', 'ready' (all that it claims was verified), 'stopping'."""
    content = {
        "schema": SCHEMA,
        "phase": phase,
        "pid": pid,
        "since": round(host.clock.now(), 3),
        "driver": wanted.driver,
        "kernel": facts.release,
        "module_type": facts.loaded_type,
        "module_source": done.reasons[0] if done and done.reasons else "",
        "modules": {name: module.version for name, module in sorted(facts.loaded.items())},
        "gpus": [gpu.address for gpu in facts.gpus],
        "root": facts.root,
        "warnings": list(done.warnings) if done else [],
        "daemons": [
            {"name": d.program.name, "pid": d.pid, "failures": d.failures, "problem": d.problem} for d in daemons
        ],
    }  # fmt: skip
    host.files.make_dirs(paths.STATE)
    host.files.write_atomic(paths.STATUS, (json.dumps(content, indent=2) + "\n").encode())
