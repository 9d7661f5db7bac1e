"""The words of `hack/test` and `hack/quickstart` are checked before anything is made: on a copy of hack/."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
HACK = TOP / "hack"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A checkout whose pyproject.toml installs nothing."""
    shutil.copytree(HACK, tmp_path / "hack")
    (tmp_path / "pyproject.toml").write_text("")
    return tmp_path


def hack(top: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {
        key: value for key, value in os.environ.items() if not key.startswith(("DRIVERFORGE_", "XDG_"))
    }
    return subprocess.run(
        ["sh", str(top / "hack" / name), *words],
        env={**environ, "HOME": str(top / "home"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("words", [["unit", "nope", "--", "-k", "x"], ["--nope"]])
def test_a_tier_that_is_none_makes_no_environment(top: Path, words: list[str]) -> None:
    done = hack(top, "test", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nope" in done.stderr
    assert sorted(path.name for path in top.iterdir()) == ["hack", "pyproject.toml"]


@pytest.mark.parametrize("words", [["--foo"], ["--images-only", "--foo"], ["--list", "--foo"], ["unit"]])
def test_an_option_that_is_none_starts_no_quickstart(top: Path, words: list[str]) -> None:
    done = hack(top, "quickstart", *words)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.startswith(f"error: no such option: {words[-1]}\n")
    assert sorted(path.name for path in top.iterdir()) == ["hack", "pyproject.toml"]


@pytest.mark.parametrize(("name", "words"), [("test", ["unit", "--help"]), ("quickstart", ["--help"])])
def test_help_makes_nothing(top: Path, name: str, words: list[str]) -> None:
    done = hack(top, name, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"hack/{name} --list" in done.stdout
    assert sorted(path.name for path in top.iterdir()) == ["hack", "pyproject.toml"]


def test_the_list_of_what_a_run_installs_needs_no_package() -> None:
    """It is read before anything is installed; `-S` leaves out what this environment has."""
    done = subprocess.run(
        [sys.executable, "-S", HACK / "lib/run.py", "testrun.needs", TOP],
        env={**os.environ, "PYTHONPATH": f"{TOP / 'entrypoints'}:{TOP / 'tests'}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Go modules, where there is a Go: " in done.stdout


def test_what_a_program_of_hack_starts_keeps_its_byte_code(top: Path) -> None:
    """Else a benchmark counts a compilation that no installed package has, at every start."""
    (top / "own.py").write_text("VALUE = 1\n")
    (top / "starts.py").write_text(
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import own'])"
    )
    subprocess.run(
        [sys.executable, top / "hack/lib/run.py", "starts"],
        env={**os.environ, "PYTHONPATH": str(top), "PYTHONDONTWRITEBYTECODE": "1"},
        check=True,
        timeout=60,
    )
    assert [path.name.partition(".")[0] for path in (top / ".work").rglob("own.*.pyc")] == ["own"]
