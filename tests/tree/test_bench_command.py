"""`hack/bench` as a program: its table, its JSON, and a benchmark that cannot run.

Such a benchmark leaves the others alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = (str(ROOT / "hack/lib/run.py"), "bench")

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="the builder needs Python 3.11")


def bench(work: Path, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, *PROGRAM, "--work", str(work), *map(str, arguments)]
    return subprocess.run(
        words, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_table_and_samples_of_what_runs_and_a_reason_for_what_cannot(tmp_path: Path) -> None:
    told = tmp_path / "samples.json"
    # no unshare and no QEMU on this PATH
    found = bench(
        tmp_path,
        "probe",
        "init",
        "plan",
        "--sizes",
        "32,64",
        "--runs",
        "1",
        "--json",
        told,
        PATH=str(tmp_path),
    )
    assert found.returncode == 1
    header, *rows = (line.split("\t") for line in found.stdout.splitlines())
    assert header == ["benchmark", "ours", "against", "ratio", "lowest"]
    assert ["init", "not here: not installed: qemu-system-x86_64"] in rows
    document = json.loads(told.read_text())
    assert sorted(document) == ["benchmarks", "machine", "schema"]
    outcomes = {outcome["name"]: outcome for outcome in document["benchmarks"]}
    assert {name: outcome["status"] for name, outcome in outcomes.items()} == {
        "probe": "not here",
        "init": "not here",
        "plan": "ran",
    }
    assert outcomes["init"]["why"] == "not installed: qemu-system-x86_64"
    measures = outcomes["plan"]["measures"]
    assert [measure["what"] for measure in measures] == [
        "CPU a cell",
        "whole process",
        "build --plan",
        "build --plan, memory",
        "start",
    ]
    assert {f"plan: {measure['what']}" for measure in measures} <= {row[0] for row in rows}
    for measure in measures:
        assert len(measure["ours"]["samples"]) == len(measure["reference"]["samples"]) == 1
        assert measure["ratio"] > 0
        assert measure["unit"] == ("bytes" if "memory" in measure["what"] else "s CPU")
    # as many as asked for, and on to a whole kernel of each driver
    cells = int(measures[0]["ours"]["of"].removeprefix("a cell of "))
    assert 64 <= cells < 80
    assert measures[1]["ours"]["of"] == f"driverforge plan, {cells} cells"


def test_an_unknown_benchmark_is_refused_with_the_names_of_all(tmp_path: Path) -> None:
    found = bench(tmp_path, "speed")
    assert found.returncode == 64
    assert "there are plan, probe, runtime, mirror, layer, operator, init, compile, build" in found.stderr
