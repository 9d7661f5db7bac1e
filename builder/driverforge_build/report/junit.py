"""JUnit XML, as GitLab and Jenkins read it: a suite for the images of a driver on an OS, a case a cell.

testsuite name="debian12-amd64-535.261.03"
  testcase classname="debian12-amd64-535.261.03" name="debian12-amd64-535.261.03-jit" time="12.5"
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

from driverforge_build.report.cases import Case, Outcome
from driverforge_build.sharedfile import replace_text
from driverforge_build.xmltext import allowed

_ELEMENTS = {Outcome.FAILED: "failure", Outcome.ERROR: "error", Outcome.SKIPPED: "skipped"}


def write_junit(path: Path, title: str, cases: Iterable[Case]) -> None:
    """Write a report. Raises StorageFailed."""
    replace_text(path, junit_text(title, cases), option="--junit")


def junit_text(title: str, cases: Iterable[Case]) -> str:
    everything, by_group = list(cases), dict[str, list[Case]]()
    for case in everything:
        by_group.setdefault(case.group, []).append(case)
    top = ET.Element("testsuites", {"name": title, **_counts(everything)})
    for group, mine in by_group.items():
        suite = ET.SubElement(top, "testsuite", {"name": group, **_counts(mine)})
        for case in mine:
            _add(suite, case)
    ET.indent(top)
    return ET.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


def _add(suite: ET.Element, case: Case) -> None:
    one = ET.SubElement(suite, "testcase", classname=case.group, name=case.cell, time=f"{case.seconds:.1f}")
    if case.outcome in _ELEMENTS:
        told = ET.SubElement(one, _ELEMENTS[case.outcome], message=_clean(case.message), type=case.word)
        told.text = _clean(case.text)
    else:
        said = "\n".join(filter(None, (f"{case.word}: {case.message}".rstrip(": "), case.text)))
        ET.SubElement(one, "system-out").text = _clean(said)


def _counts(cases: list[Case]) -> dict[str, str]:
    outcomes = [case.outcome for case in cases]
    return {
        "tests": str(len(cases)),
        "failures": str(outcomes.count(Outcome.FAILED)),
        "errors": str(outcomes.count(Outcome.ERROR)),
        "skipped": str(outcomes.count(Outcome.SKIPPED)),
        "time": f"{sum(case.seconds for case in cases):.1f}",
    }


def _clean(text: str) -> str:
    return allowed(text, instead="\ufffd")
