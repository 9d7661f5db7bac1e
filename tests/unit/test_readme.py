"""README.md and everything else that tells people how to install driverforge."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from driverforge_core import __version__

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
WIDEST = 100  # columns of a terminal in which somebody reads it
TOLD = [
    path
    for pattern in ("*.md", "docs/**/*.md", "docs/**/*.yml", "*/driverforge_*/**/*.py")
    for path in sorted(ROOT.glob(pattern))
]
# by its name alone, which a package index would have to know; a copy of the repository follows an @
UNPUBLISHED = re.compile(
    r"\bpip (?:install|download|wheel) (?:-\S+ (?:[^-\s]\S* )?)*['\"]?driverforge(?![\w-])(?!\S* @ )"
)


def test_nobody_is_told_to_install_a_package_that_is_not_published() -> None:
    found = {
        str(path.relative_to(ROOT)): told for path in TOLD if (told := UNPUBLISHED.findall(path.read_text()))
    }
    assert not found


@pytest.mark.parametrize(
    "told",
    [
        "pip install driverforge",
        "pip install 'driverforge[build]'",
        "pip download -d x -q 'driverforge[build]'",
    ],
)
def test_a_name_that_an_index_would_have_to_know_is_found(told: str) -> None:
    assert UNPUBLISHED.search(told)


@pytest.mark.parametrize(
    "told",
    [
        "pip install '.[build]' in a checkout of driverforge",
        "pip install 'driverforge[build] @ git+https://github.com/example/driverforge@COMMIT'",
        "pip install '/path/to/checkout[build]'",
    ],
)
def test_a_checkout_is_let_through(told: str) -> None:
    assert not UNPUBLISHED.search(told)


def test_the_state_is_told() -> None:
    assert f"Version {__version__}," in README
    assert "never run on a GPU" in README


def test_pictures_and_commands_fit_a_terminal() -> None:
    blocks = re.findall(r"^```\w*\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert blocks
    assert [line for block in blocks for line in block.splitlines() if len(line) > WIDEST] == []
