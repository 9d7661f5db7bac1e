"""CPU time and memory of programs, from the kernel's own account of a child and its children.

As a program it is called as `cpu.py RUNS COMMANDS`, with COMMANDS as a JSON list of commands. It runs them in
turn and prints the samples of each as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Sequence

WARM_UP = 2  # rounds that are not counted: page cache, byte code


def cpu_of(argv: Sequence[str]) -> float:
    """Run a program with its output thrown away; returns its seconds of CPU, user and system.

    All that the program waited for counts, too. Raises OSError where there is no such program, RuntimeError
    when it fails.
    """
    usage = _usage_of(argv)
    return usage.ru_utime + usage.ru_stime


def peak_of(argv: Sequence[str]) -> float:
    """Run a program as `cpu_of` does; returns the bytes that it, or one of its children, had at the most."""
    return _usage_of(argv).ru_maxrss * 1024.0


def _usage_of(argv: Sequence[str]) -> resource.struct_rusage:
    actions = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    pid = os.posix_spawnp(argv[0], list(argv), os.environ, file_actions=actions)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise RuntimeError(f"{' '.join(argv)} failed: wait status {status}")
    return usage


def alternate(commands: Sequence[Sequence[str]], runs: int) -> list[list[float]]:
    """Samples of each command, taken in turn so that a busy moment of the machine hits all of them.

    Nothing is warmed up for a single one, which is a try and measures nothing.
    """
    unmeasured = WARM_UP if runs > 1 else 0
    rounds = [[cpu_of(argv) for argv in commands] for _ in range(runs + unmeasured)][unmeasured:]
    return [list(samples) for samples in zip(*rounds, strict=True)]


if __name__ == "__main__":
    print(json.dumps(alternate(json.loads(sys.argv[2]), int(sys.argv[1]))))
