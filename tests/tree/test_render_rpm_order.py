"""The order of versions by which dockerfiles/rhel/manager leaves out what a base image has: rpm's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from driverforge_build import resources
from support.process import missing

MANAGER = resources.templates() / "rhel/manager"
pytestmark = pytest.mark.skipif(bool(missing("rpm")), reason="no rpm here")


def newer_or_same(installed: str, wanted: str) -> bool:
    script = f'. {MANAGER}; newer_or_same "$1" "$2"'
    done = subprocess.run(
        ["sh", "-eu", "-c", script, "sh", installed, wanted], capture_output=True, check=False
    )
    assert done.stderr == b""
    return done.returncode == 0


@pytest.mark.parametrize(
    ("installed", "wanted", "enough"),
    [
        ("0:1.10-1.el9", "0:1.9-1.el9", True),
        ("0:1.9-1.el9", "0:1.10-1.el9", False),
        ("0:1.9-2.el9", "0:1.9-2.el9", True),
        ("0:9.9-1", "1:1.0-1", False),
        ("0:1.0~rc1-1", "0:1.0-1", False),
        ("0:1.0^git1-1", "0:1.0-1", True),
    ],
)
def test_versions_are_in_rpms_order(installed: str, wanted: str, enough: bool) -> None:
    assert newer_or_same(installed, wanted) is enough


def test_a_version_is_text_whatever_rpms_macros_and_lua_would_make_of_it(tmp_path: Path) -> None:
    for number, words in enumerate(
        ("%(touch {mark})", "%{{lua:io.open('{mark}', 'w')}}", "')) io.open('{mark}', 'w') print(('")
    ):
        mark = tmp_path / str(number)
        newer_or_same(f"0:1{words.format(mark=mark)}-1", "0:1-1")
        assert not mark.exists(), words
