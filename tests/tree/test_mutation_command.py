"""`hack/mutants` as a program: a run over one small file, from the copies to the JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="hack/mutants needs Python 3.11")


@pytest.mark.full(reason="installs cosmic-ray")
def test_a_run_over_the_loop_finds_mutants_and_kills_most(tmp_path: Path) -> None:
    told = tmp_path / "mutants.json"
    before = (ROOT / "entrypoints/driverforge_host/reconcile/loop.py").read_bytes()
    done = subprocess.run(
        [ROOT / "hack/mutants", "reconcile/loop.py", "--json", told],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (file,) = json.loads(told.read_text())["files"]
    assert file["killed"] > file["mutants"] / 2
    assert (ROOT / "entrypoints/driverforge_host/reconcile/loop.py").read_bytes() == before


@pytest.mark.full(reason="installs cosmic-ray")
def test_a_file_that_is_not_listed_is_refused() -> None:
    done = subprocess.run([ROOT / "hack/mutants", "ports.py"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "ports.py is none of the files that are mutated" in done.stderr
