"""driverctls that are killed while they change the runtime of a node."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import driverctl
from driverforge_toolkit.runtime.transaction import restore
from support.machines import runtimenode
from support.machines.runtimenode import RuntimeNode
from support.process import Finished, run

PACKAGES = [Path(driverctl.__file__).parents[1], Path(runtimenode.__file__).parents[2]]


def killed(node: RuntimeNode, action: str, number: int) -> Finished:
    """A driverctl that dies before its change of that number."""
    words = [sys.executable, "-m", "support.fakes.killable", str(number), *node.words(action)]
    return run(*words, env={"PYTHONPATH": ":".join(map(str, PACKAGES))}, check=False)


def marks(name: str) -> list[Path]:
    """Restores of the node in that state."""
    return list(Path(restore.FOLDER).glob(f"*/{name}"))


def with_a_victim(node: RuntimeNode, after: str) -> Finished:
    """An apply whose restart command runs `after`, with $victim for driverctl's PID, between the stop and the
    start of the daemon.
    """
    mark = node.home / "victim"
    node.write_restart(after=f"victim=$(cat {mark})\n{after}")
    words = [sys.executable, "-m", "support.fakes.killable", "1000", *node.words("apply")]
    environment = {"PYTHONPATH": ":".join(map(str, PACKAGES))}
    done = run("sh", "-c", f'echo $$ >{mark}; exec "$@"', "sh", *words, env=environment, check=False)
    assert done.status == -signal.SIGKILL, done.stderr
    return done
