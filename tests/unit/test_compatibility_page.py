"""docs/compatibility.md against what upstream's containers have: each line is served by our code, or named.

tests/cases/contract is a list by people, from the sources that the page names: `same` is a place of this
repository (FILE: WORDS IN IT), `named` are words of the page. Where a program can ask our code whether it
serves a thing, it does: a line that says otherwise fails, in both directions.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from driverctl.cli import build_parser
from driverctl.compatible import driver_arguments
from driverforge_core.errors import UsageError
from driverforge_driver.state.variables import VARIABLES
from driverforge_toolkit.toolkit.options import OPTIONS

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = ROOT / "tests/cases/contract"
PAGE = (ROOT / "docs/compatibility.md").read_text(encoding="utf-8")
Line = dict[str, Any]  # JSON


def lines(name: str) -> list[Line]:
    found: list[Line] = json.loads((CONTRACT / name).read_text(encoding="utf-8"))
    return found


LINES = [*lines("driver.json"), *lines("toolkit.json")]
INSTALLER = lines("toolkit-options.json")


def of_kind(kind: str) -> list[Line]:
    found = [line for line in LINES if line["kind"] == kind]
    assert found, f"tests/cases/contract has no {kind}"
    return found


def label(line: Line) -> str:
    return f"{line['kind']} {line['name']}"


@pytest.mark.parametrize("line", LINES, ids=label)
def test_each_line_is_in_our_code_or_on_the_page(line: Line) -> None:
    assert ("same" in line) != ("named" in line), "a line says either where it is served, or what names it"
    if "named" in line:
        assert line["named"] in PAGE, "docs/compatibility.md does not name it"
        return
    file, _, words = line["same"].partition(": ")
    assert words in (ROOT / file).read_text(encoding="utf-8"), f"{file} has it no longer: where is it now?"


def test_no_line_is_there_twice() -> None:
    names = [label(line) for line in LINES]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("line", of_kind("variable"), ids=label)
def test_a_variable_is_read_or_named(line: Line) -> None:
    assert (line["name"] in {variable.name for variable in VARIABLES}) == ("same" in line)


@pytest.mark.parametrize("line", of_kind("command"), ids=label)
def test_a_command_is_served_or_named(line: Line) -> None:
    try:
        driver_arguments(line["name"].split())
        served = True
    except UsageError:
        served = False
    assert served == ("same" in line)


@pytest.mark.parametrize("line", of_kind("cdi generate"), ids=label)
def test_an_option_of_cdi_generate_is_served_or_named(line: Line) -> None:
    try:
        build_parser("cdi").parse_args(["cdi", "generate", *line["name"].split()])
        served = True
    except UsageError:
        served = False
    assert served == ("same" in line)


@pytest.mark.parametrize("line", INSTALLER, ids=lambda line: str(line["flags"][0]))
def test_an_option_of_the_installer_has_its_names_and_its_default(line: Line) -> None:
    ours = [option for option in OPTIONS if line["flags"][0] in option.flags]
    assert len(ours) == 1
    assert set(line["flags"]) <= set(ours[0].flags)
    read = [name for name in ours[0].variables if name in line["variables"]]
    assert read == line["variables"], "which of several counts is part of the contract"
    if line["default"] is not None and line["default"] != ours[0].default:
        assert line["named"] in PAGE, f"the default is {ours[0].default!r}, and the page does not say so"


def test_the_page_names_no_variable_as_missing_that_is_read() -> None:
    rows = [row.split(" | ") for row in PAGE.partition("## Not yet")[2].splitlines() if row.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`([A-Z][A-Z0-9_]{3,})`", row[1])}
    assert named, "the pattern finds nothing any more"
    assert not named & {variable.name for variable in VARIABLES}
