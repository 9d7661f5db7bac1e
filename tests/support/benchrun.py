"""`hack/bench` as a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = (sys.executable, str(Path(__file__).resolve().parents[2] / "hack/lib/run.py"), "bench")


def bench(work: Path, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it with more or other variables of the environment."""
    return subprocess.run(
        [*PROGRAM, "--work", str(work), *map(str, words)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def smallest(name: str, work: Path, **environment: str) -> dict[str, Any]:
    """One benchmark in its smallest form: what its JSON says.

    Raises AssertionError with the benchmark's messages where it did not run to its end, or measured nothing.
    """
    told = work / "samples.json"
    done = bench(work, "--smallest", "--json", told, name, **environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (outcome,) = json.loads(told.read_text())["benchmarks"]
    assert outcome["measures"]
    for measure in outcome["measures"]:
        assert measure["ours"]["samples"], measure["what"]
        assert measure["ratio"] >= 0, measure["what"]
    found: dict[str, Any] = outcome
    return found
