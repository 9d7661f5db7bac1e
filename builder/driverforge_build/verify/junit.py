"""The report as JUnit XML, which CI systems show: a suite a cell, a case a check."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from xml.etree import ElementTree as ET

from driverforge_build.verify.report import Proof
from driverforge_build.xmltext import allowed


def junit(proofs: Sequence[Proof]) -> bytes:
    """The document. A cell that could not be tried is a suite with one case in error."""
    root = ET.Element("testsuites", name="driverforge verify")
    for proof in proofs:
        failed = sum(not check.passed for check in proof.checks)
        suite = ET.SubElement(
            root,
            "testsuite",
            name=_clean(proof.cell),
            tests=str(len(proof.checks) + bool(proof.error)),
            failures=str(failed),
            errors=str(int(bool(proof.error))),
            time=f"{proof.seconds:.1f}",
        )
        for check in proof.checks:
            case = ET.SubElement(suite, "testcase", classname=_clean(proof.cell), name=_clean(check.name))
            if not check.passed:
                message = f"{check.outcome.value}: {check.reason}"
                failure = ET.SubElement(case, "failure", type=check.outcome.value, message=_clean(message))
                failure.text = _clean("\n".join(check.log))
            elif check.log:
                ET.SubElement(case, "system-out").text = _clean("\n".join(check.log))
        if proof.error:
            case = ET.SubElement(suite, "testcase", classname=_clean(proof.cell), name="could not be tried")
            ET.SubElement(case, "error", message=_clean(proof.error.brief)).text = _clean(
                proof.error.render()
            )
    ET.indent(root)
    written = BytesIO()
    ET.ElementTree(root).write(written, encoding="utf-8", xml_declaration=True)
    return written.getvalue() + b"\n"


def _clean(text: str) -> str:
    return allowed(text, instead="?")
