"""Files of other projects in tests/cases hold data alone, and each folder says where its files come from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml

CASES = Path(__file__).resolve().parents[1] / "cases"
FOLDERS = sorted(path for path in CASES.iterdir() if path.is_dir())
DATA = sorted(path for path in CASES.rglob("*") if path.suffix in (".json", ".toml", ".yaml"))
# keys under which people explain a case to people; `note` and `because` are this project's own
PROSE = {"comment", "comments", "description", "doc", "kubernetes.io/description", "notes"}
SCRIPT = re.compile(r"\A\s*#!|^\s*(if|for|while|until)\b.*\n(.*\n)*\s*(fi|done)\b", re.MULTILINE)


def yaml_documents(text: str) -> list[Any]:
    # golden-cdi has @…@ for folders, which no plain scalar may start with
    return list(yaml.load_all(text.replace("@", "_"), Loader=yaml.CSafeLoader))


READ: dict[str, Callable[[str], Any]] = {
    ".json": json.loads,
    ".toml": tomllib.loads,
    ".yaml": yaml_documents,
}


def comments(text: str, read: Callable[[str], Any]) -> Iterator[str]:
    """Comments of a file: what starts with a # and can be cut off without another value."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        for at in (found.start() for found in re.finditer("#", line)):
            cut = "\n".join([*lines[:number], line[:at], *lines[number + 1 :]])
            try:
                same = read(cut) == read(text)
            except (ValueError, yaml.YAMLError):
                continue
            if same:
                yield line[at:]
                break


def texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Each text of a document with its key; an element of a list has the list's."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from texts(one, str(name))
    elif isinstance(value, list):
        for one in value:
            yield from texts(one, key)
    elif isinstance(value, str):
        yield key, value


def strangers(text: str, suffix: str) -> list[str]:
    """What is no data in a file: comments, explanations, scripts."""
    read = READ[suffix]
    found = [f"comment: {comment}" for comment in comments(text, read)]
    for key, value in texts(read(text)):
        if key in PROSE and value:
            found.append(f"prose: {key}: {value}")
        if SCRIPT.search(value):
            found.append(f"script: {key}: {value}")
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_files_of_others_are_data_alone(folder: Path) -> None:
    found = {
        str(path.relative_to(CASES)): told
        for path in DATA
        if folder in path.parents and (told := strangers(path.read_text(), path.suffix))
    }
    assert not found


@pytest.mark.parametrize(
    ("text", "suffix", "kind"),
    [
        ("a: 1 # one\n", ".yaml", "comment"),
        ("# one\na: 1\n", ".yaml", "comment"),
        ("a = 1\n  # one\n", ".toml", "comment"),
        ('{"description": "what it is about"}', ".json", "prose"),
        ("args:\n- |\n  until [ -f x ]; do\n  sleep 1\n  done\n", ".yaml", "script"),
        ('{"content": "#!/bin/sh\\nexec true\\n"}', ".json", "script"),
    ],
)
def test_what_is_no_data_is_found(text: str, suffix: str, kind: str) -> None:
    assert [told.partition(":")[0] for told in strangers(text, suffix)] == [kind]


@pytest.mark.parametrize(
    ("text", "suffix"),
    [("a: 'b # c'\nd: e#f\n", ".yaml"), ('a = "b # c"\n', ".toml"), ('{"description": ""}', ".json")],
)
def test_data_is_let_through(text: str, suffix: str) -> None:
    assert strangers(text, suffix) == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_each_folder_says_source_and_licence_of_all_its_files(folder: Path) -> None:
    told = (folder / "README.md").read_text()
    assert re.search("source", told, re.IGNORECASE)
    assert re.search("licence", told, re.IGNORECASE)
    named = re.findall(r"`([^`]+)`", told)
    for path in folder.iterdir():
        if path.name not in ("README.md", "LICENSE"):
            assert any(path.match(name.rstrip("/")) for name in named), f"{path.name} is not in the table"


def test_each_published_project_has_a_licence_in_the_table() -> None:
    told = (CASES / "published/README.md").read_text()
    for row in json.loads((CASES / "published/index.json").read_text()):
        assert row["version"]
        assert re.search(rf"\b{re.escape(row['project'])}\b", told), row["project"]
