"""The status file, /run/nvidia/driverforge/status.json: for the startup probe, people and programs.

Each top-level key has a line of its own: the probe reads `phase` and `pid` without a JSON parser.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum

from driverforge_driver.driver.supervise import SupervisedDaemon
from driverforge_driver.state import paths
from driverforge_driver.state.facts import DriverFacts, WantedDriver
from driverforge_host.ports import Host
from driverforge_host.reconcile.outcomes import Done

SCHEMA = 1


class Phase(Enum):
    """Where `init` is."""

    STARTING = "starting"
    # all that the file claims was verified
    READY = "ready"
    STOPPING = "stopping"


def write(
    host: Host,
    *,
    phase: Phase,
    pid: int,
    facts: DriverFacts,
    wanted: WantedDriver,
    done: Done | None = None,
    daemons: Sequence[SupervisedDaemon] = (),
) -> None:
    """Write the file, atomically.

    `pid` is the process that serves the node, `done` the outcome of its start.
    """
    content = {
        "schema": SCHEMA,
        "phase": phase.value,
        "pid": pid,
        "since": round(host.clock.now(), 3),
        "driver": wanted.driver,
        "kernel": facts.release,
        "module_type": facts.loaded_type,
        "module_source": done.reasons[0] if done and done.reasons else "",
        "modules": {name: module.version for name, module in sorted(facts.loaded.items())},
        "gpus": [gpu.address for gpu in facts.gpus],
        "root": facts.root.value,
        "warnings": list(done.warnings) if done else [],
        "daemons": [
            {"name": d.program.name, "pid": d.pid, "failures": d.failures, "problem": d.problem}
            for d in daemons
        ],
    }
    host.files.make_dirs(paths.STATE)
    host.files.write_atomic(paths.STATUS, (json.dumps(content, indent=2) + "\n").encode())
