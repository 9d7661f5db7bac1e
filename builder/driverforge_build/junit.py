"""JUnit XML, as GitLab and Jenkins read it: suites of cases.

testsuite name="debian12-amd64-535.261.03"
  testcase classname="debian12-amd64-535.261.03" name="debian12-amd64-535.261.03-jit" time="12.5"
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from xml.etree import ElementTree as ET

from driverforge_build.sharedfile import make_folder_of, replace_text

# what XML 1.0 cannot have in any form, not even as references ("Char" of its grammar): a kernel's log or a
# program's output may have it
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Outcome(Enum):
    """A test's outcome, as CI systems know them."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    """Nobody knows: a registry did not answer, or it could not be tried."""
    SKIPPED = "skipped"


_ELEMENTS = {Outcome.FAILED: "failure", Outcome.ERROR: "error", Outcome.SKIPPED: "skipped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JUnitCase:
    """`word` is what happened in a word or two, `message` the sentence, `text` the evidence."""

    name: str
    outcome: Outcome
    word: str = ""
    message: str = ""
    text: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """`seconds` is what all took together, where the cases do not say it."""

    name: str
    cases: Sequence[JUnitCase]
    seconds: float = 0.0

    def counts(self) -> dict[str, str]:
        outcomes = [case.outcome for case in self.cases]
        return {
            "tests": str(len(outcomes)),
            "failures": str(outcomes.count(Outcome.FAILED)),
            "errors": str(outcomes.count(Outcome.ERROR)),
            "skipped": str(outcomes.count(Outcome.SKIPPED)),
            "time": f"{self.seconds or sum(case.seconds for case in self.cases):.1f}",
        }


def write_junit(path: Path, title: str, suites: Iterable[Suite]) -> None:
    """Write a report, and its folder where there is none. Raises StorageFailed."""
    make_folder_of(path, option="--junit")
    replace_text(path, junit_text(title, suites), option="--junit")


def junit_text(title: str, suites: Iterable[Suite]) -> str:
    everything = list(suites)
    whole = Suite(
        name=title,
        cases=[case for suite in everything for case in suite.cases],
        seconds=sum(suite.seconds for suite in everything),
    )
    top = ET.Element("testsuites", {"name": title, **whole.counts()})
    for suite in everything:
        inside = ET.SubElement(top, "testsuite", {"name": _allowed(suite.name), **suite.counts()})
        for case in suite.cases:
            _add(inside, suite.name, case)
    ET.indent(top)
    return ET.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


def _add(suite: ET.Element, name: str, case: JUnitCase) -> None:
    one = ET.SubElement(
        suite,
        "testcase",
        classname=_allowed(name),
        name=_allowed(case.name),
        time=f"{case.seconds:.1f}",
    )
    if case.outcome in _ELEMENTS:
        told = ET.SubElement(one, _ELEMENTS[case.outcome], message=_allowed(case.message), type=case.word)
        told.text = _allowed(case.text)
    elif said := "\n".join(filter(None, (f"{case.word}: {case.message}".strip(": "), case.text))):
        ET.SubElement(one, "system-out").text = _allowed(said)


def _allowed(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
