"""`hack/bench` as a program: its table, its JSON, and that one benchmark which cannot run leaves the others alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "hack/lib/bench.py"

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="the builder needs Python 3.11")


def bench(work: Path, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(PROGRAM), "--work", str(work), *map(str, arguments)]
    return subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def test_plan_gives_a_table_and_every_sample_as_json(tmp_path: Path) -> None:
    found = bench(tmp_path, "plan", "--sizes", "100,2000", "--runs", "2", "--json", tmp_path / "samples.json")
    assert found.returncode == 0, found.stderr
    header, first, *_ = (line.split("\t") for line in found.stdout.splitlines())
    assert header == ["benchmark", "ours", "against", "ratio", "lowest"]
    assert first[0] == "plan: CPU a cell"
    told = json.loads((tmp_path / "samples.json").read_text())
    assert sorted(told) == ["benchmarks", "machine", "schema"]
    (outcome,) = told["benchmarks"]
    assert (outcome["name"], outcome["status"], outcome["why"]) == ("plan", "ran", "")
    assert [measure["what"] for measure in outcome["measures"]] == ["CPU a cell", "whole process", "start"]
    for measure in outcome["measures"]:
        assert len(measure["ours"]["samples"]) == len(measure["reference"]["samples"]) == 2
        assert measure["ratio"] > 0
        assert measure["unit"] == "s CPU"
    assert [measure["ours"]["of"] for measure in outcome["measures"][:2]] == ["a cell of 2000", "driverforge plan, 2000 cells"]


def test_a_benchmark_that_cannot_run_here_says_why_and_the_others_go_on(tmp_path: Path) -> None:
    told = tmp_path / "samples.json"
    # no unshare and no QEMU on this PATH
    found = bench(tmp_path, "probe", "init", "plan", "--sizes", "30,60", "--runs", "1", "--json", told, PATH=str(tmp_path))
    assert found.returncode == 1
    outcomes = {outcome["name"]: outcome for outcome in json.loads(told.read_text())["benchmarks"]}
    assert {name: outcome["status"] for name, outcome in outcomes.items()} == {"probe": "not here", "init": "not here", "plan": "ran"}
    assert outcomes["init"]["why"] == "not installed: qemu-system-x86_64"
    assert "init\tnot here: not installed: qemu-system-x86_64" in found.stdout.splitlines()


def test_an_unknown_benchmark_is_refused_with_the_names_of_all(tmp_path: Path) -> None:
    found = bench(tmp_path, "speed")
    assert found.returncode == 64
    assert "there are plan, probe, runtime, layer, init, build" in found.stderr
