"""`hack/bench` as a program: its table, its JSON, and a benchmark that cannot run.

Such a benchmark leaves the others alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from support.benchrun import bench

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="the builder needs Python 3.11")


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


@pytest.mark.parametrize("words", [("--runs", "3"), ("--sizes", "32,64")])
def test_the_smallest_form_is_refused_with_a_size(words: tuple[str, str], tmp_path: Path) -> None:
    found = bench(tmp_path, "--smallest", *words)
    assert found.returncode == 2
    assert "leave --runs and --sizes out" in found.stderr


def test_each_benchmark_has_a_test_of_its_smallest_form() -> None:
    named = {path.stem for path in (ROOT / "hack/lib/bench/benchmarks").glob("[a-z]*.py")}
    texts = [path.read_text() for path in (ROOT / "tests").glob("*/test_bench_*.py")]
    run = {name for name in named if any(f'smallest("{name}", ' in text for text in texts)}
    assert named - run == {"plan"}, "plan runs above, with two sizes"


def test_no_program_lies_beside_a_module_that_shadows_the_standard_library() -> None:
    """A program that is started by its path has its own folder first on the import path."""
    programs = [
        path
        for folder in ("builder", "entrypoints", "hack", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "__main__.py" and '__name__ == "__main__"' in path.read_text()
    ]
    assert ROOT / "hack/lib/bench/cpu.py" in programs
    shadows = {
        str(path.relative_to(ROOT)): beside.name
        for path in programs
        for beside in path.parent.iterdir()
        if beside.stem in sys.stdlib_module_names and (beside.suffix == ".py" or beside.is_dir())
    }
    assert not shadows
