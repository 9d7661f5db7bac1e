"""Every option of every command is named by a page of docs, or is a variable of a page of variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from driverforge_toolkit.validate.validator_settings import VARIABLES
from support.commandtree import programs, walk

TOP = Path(__file__).resolve().parents[2]
USUAL = {"--help", "--version"}
# their page says that each variable of its table is an option, too
BY_VARIABLE = {variable.flag for variable in VARIABLES}


def _all() -> Iterator[tuple[str, set[str]]]:
    for program, command in programs().items():
        for path, names in walk(program, command):
            if longest := {name for name in names if name.startswith("--")} - USUAL:
                yield path, longest


def test_every_option_is_on_a_page() -> None:
    pages = "\n".join(page.read_text() for page in [TOP / "README.md", *(TOP / "docs").rglob("*.md")])
    named = set(re.findall(r"--[a-z0-9]+(?:[.-][a-z0-9]+)*", pages)) | BY_VARIABLE
    found = list(_all())
    assert len(found) > 200
    assert [f"{path}: {' or '.join(sorted(names))}" for path, names in found if not names & named] == []
