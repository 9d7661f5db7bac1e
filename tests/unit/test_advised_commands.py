"""A command of ours that a message or a page names is one that there is, with the options that it has.

That each does what it is named for is run where it can be (`tests/tree/test_doctor_cures.py`,
`tests/tree/test_advice_works.py`, `tests/engine/test_advice_runtime.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from support.advised import texts
from support.commandtree import Command, programs

TOP = Path(__file__).resolve().parents[2]
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", *sorted((TOP / "docs").rglob("*.md"))]
PROGRAMS = programs()
# not the name of a release or of a namespace, which Helm and kubectl are given
NAMED = re.compile(
    r"(?<![\w./@-])(?<!-n )(?<!helm install )(?<!helm upgrade )(?<!helm template )(?<!helm uninstall )"
    r"(driverctl|driverforge-operator|driverforge) (?=\S)"
)
END = re.compile(r"[;|&()`#\n…]|\.\.\.| -- |, |: ")
OPTION = re.compile(r"--[a-z0-9]+(?:[.-][a-z0-9]+)*")
# what a sentence says of a program
PROSE = {
    *("asks", "beside", "built", "changed", "changes", "costs", "computes", "did", "died", "does", "from"),
    *("give", "goes", "has", "is", "itself", "kept", "killed", "knows", "lacks", "of", "reads", "runs"),
    *("ships", "that", "was", "writes", "wrote"),
}
KINDS = {
    "driverforge operator",
    "driverforge mirror archive",
}  # of what is signed and built: names, not advice


def wrong(text: str) -> Iterator[str]:
    """Commands in a text that are not there; X stands for a word that is filled in."""
    for found in NAMED.finditer(text):
        words = END.split(text[found.end() :], maxsplit=1)[0].split()
        if not words or words[0].rstrip(".") in PROSE:
            continue
        here, path, rest = PROGRAMS[found[1]], [found[1]], list(words)
        while rest and rest[0].rstrip(".") in here.words and here.words[rest[0].rstrip(".")] is not here:
            path.append(rest.pop(0).rstrip("."))
            here = here.words[path[-1]]
        unknown = [*_unknown_word(here, path, rest), *_unknown_options(here, found[1], rest)]
        yield from (f"{' '.join(path)} has no {word}: {text[found.start() :][:60]!r}" for word in unknown)


def _unknown_word(here: Command, path: list[str], rest: list[str]) -> list[str]:
    word = rest[0].rstrip(".") if rest else ""
    free = word in ("", "X", *PROSE, *here.words) or not re.fullmatch(r"[a-z][a-z-]*", word)
    return [] if free or not here.words else [word]


def _unknown_options(here: Command, program: str, rest: list[str]) -> list[str]:
    named = [option[0] for word in rest if (option := OPTION.match(word))]
    return [name for name in named if name not in here.names | PROGRAMS[program].names]


def test_every_command_that_a_message_names_is_there() -> None:
    modules = [path for top in ("entrypoints", "builder") for path in sorted((TOP / top).rglob("*.py"))]
    sources = {path: source for path in modules if NAMED.search(source := path.read_text())}
    assert len(sources) > 60
    found = {path: [text for text in texts(source) if text not in KINDS] for path, source in sources.items()}
    faults = [f"{path.name}: {fault}" for path, one in found.items() for text in one for fault in wrong(text)]
    assert faults == []


def test_every_command_that_a_page_names_is_there() -> None:
    assert [f"{page.name}: {fault}" for page in PAGES for fault in wrong(page.read_text())] == []


def test_a_command_that_is_not_there_is_found() -> None:
    assert len([*wrong("stay, or `driverctl uninstall` there")]) == 1
    assert len([*wrong("next: driverctl runtime apply --forse")]) == 1
    assert len([*wrong("run driverforge mirror fetch --to X")]) == 2
    assert [*wrong("driverctl runtime revert --strip; driverctl changed nothing")] == []
