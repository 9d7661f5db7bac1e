"""JUnit, the step summary and the published schemas, made of documents that the commands really print."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from driverforge_build.advice import Given
from driverforge_build.app.outcomes import build_cells
from driverforge_build.app.prepare import Prepared
from driverforge_build.app.runner import CellReport, FailedAttempt, Result
from driverforge_build.documents.images import BuildCell
from driverforge_build.junit import Outcome, junit_text
from driverforge_build.lock.pins import Lock
from driverforge_build.matrix import load_matrix
from driverforge_build.plan.rows import Plan, Planned
from driverforge_build.plan.text import documents, json_lines
from driverforge_build.ports import BuiltImage, Layer
from driverforge_build.publish.upload import PushReport
from driverforge_build.report.cases import Case, build_cases, plan_cases, suites
from driverforge_build.report.summary import LIMIT, summary_text
from driverforge_build.verdict.verdicts import State, Verdict
from driverforge_core.errors import CommandFailed
from support.jsonschemas import SCHEMAS, check_document
from support.samples.synthetic import all_cells, synthetic_lock

sys.path.append(str(Path(__file__).parents[2] / "hack/lib"))
from pages.schemas import DOCUMENTS

CELLS = {cell.key: cell for cell in all_cells(load_matrix())}
JIT = "debian12-amd64-535.261.03-jit"
KERNEL = "debian12-amd64-535.261.03-6.1.0-50-cloud-amd64"
OTHER = "debian12-amd64-580.178.04-jit"
LATER = "debian13-amd64-550.163.01-jit"
ESCAPES = "nv-pci.c:237: \x1b[31merror\x1b[0m: <too few> arguments \x00"


def plan() -> Plan:
    verdicts = {
        JIT: Verdict(state=State.BUILD, reason="compiles on the node"),
        KERNEL: Verdict(state=State.BUILD, reason="headers 6.1.176-1"),
        OTHER: Verdict(state=State.BLOCKED, reason="four arguments", evidence=("pci.h:1460: int f();",)),
        LATER: Verdict(state=State.UNKNOWN, reason="no answer", run="docker login", unanswered=True),
    }
    return Plan(rows=tuple(Planned(cell=CELLS[key], verdict=verdict) for key, verdict in verdicts.items()))


def built() -> list[BuildCell]:
    error = CommandFailed("docker buildx exited 1", details=[ESCAPES], resolution="read the log")
    image = BuiltImage(
        reference="localhost/driver:a",
        id="sha256:1",
        size=10,
        layers=(Layer(digest="sha256:2", size=5, created_by="COPY"),),
    )
    pushed = PushReport(
        cell=JIT,
        reference="registry.site/driver:535-r1",
        digest="sha256:3",
        sent=True,
        alias="registry.site/driver:535",
        alias_digest="sha256:4",
        moved=True,
    )
    reports = [
        CellReport(
            cell=JIT,
            result=Result.BUILT,
            reference="localhost/driver:a",
            log=Path("a.log"),
            seconds=61.23,
            image=image,
            pushed=pushed,
            attempts=(FailedAttempt(reason="registry.site answers 503", seconds=3.0),),
        ),
        CellReport(
            cell=KERNEL,
            result=Result.FAILED,
            reference="localhost/driver:b",
            log=Path("b.log"),
            seconds=5.0,
            error=error,
        ),
    ]
    return list(build_cells(Prepared(plan=plan(), lock=Lock(), given=Given()), (), reports))


def test_what_build_prints_is_what_its_schema_says() -> None:
    check_document("build", {"schema": 1, "engine": "docker 28, buildx 0.29", "cells": built()})


def test_what_plan_prints_is_what_its_schema_says() -> None:
    made, given = datetime(2026, 1, 2, tzinfo=timezone.utc), Given(matrix=Path("site.yaml"))
    text = "\n".join(json_lines(plan(), synthetic_lock(load_matrix()), given=given, made=made))
    check_document("plan", json.loads(text))


def test_the_page_on_failures_names_every_published_schema() -> None:
    page = (Path(__file__).parents[2] / "docs/failures.md").read_text()
    (told,) = re.findall(r"^Each document has a JSON schema in (.*?)\.$", page, re.MULTILINE | re.DOTALL)
    published = {path.name.removesuffix(".schema.json") for path in SCHEMAS.iterdir()}
    assert set(re.findall(r"`([a-z-]+)`", told)) == published == set(DOCUMENTS)


def test_a_schema_refuses_what_is_not_described() -> None:
    from jsonschema import ValidationError

    with pytest.raises(ValidationError):
        check_document("build", {"schema": 1, "engine": "", "cells": [{**built()[0], "new": 1}]})
    with pytest.raises(ValidationError):
        check_document("plan", {"schema": 2, "cells": [], "summary": {}})


def cases(text: str) -> Iterator[ET.Element]:
    yield from ET.fromstring(text).iter("testcase")


def test_junit_of_a_build() -> None:
    text = junit_text("driverforge build", suites(build_cases(built(), unwanted={OTHER}, unanswered={LATER})))
    top = ET.fromstring(text)
    assert {name: top.get(name) for name in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "4",
        "failures": "2",
        "errors": "1",
        "skipped": "0",
        "time": "66.2",
    }
    assert [suite.get("name") for suite in top] == [
        "debian12-amd64-535.261.03",
        "debian12-amd64-580.178.04",
        "debian13-amd64-550.163.01",
    ]
    good, bad, blocked, unanswered = cases(text)
    assert (good.get("classname"), good.get("name"), good.get("time")) == (
        "debian12-amd64-535.261.03",
        JIT,
        "61.2",
    )
    assert "registry.site/driver:535-r1" in good.findtext("system-out", "")
    assert "tried again after 3 s: registry.site answers 503" in good.findtext("system-out", "")
    failure = bad.find("failure")
    assert failure is not None
    assert failure.get("message") == "docker buildx exited 1"
    # what XML cannot have is replaced, markup is text
    assert "\ufffd[31merror" in (failure.text or "")
    assert "<too few> arguments \ufffd" in (failure.text or "")
    assert blocked.find("failure") is not None
    assert unanswered.find("error") is not None


def test_junit_of_a_plan_fails_nothing_but_an_answer_that_is_missing() -> None:
    found = [
        (case.get("name"), next((child.tag for child in case), ""))
        for case in cases(junit_text("driverforge plan", suites(plan_cases(documents(plan()), {LATER}))))
    ]
    assert found == [(JIT, "system-out"), (KERNEL, "system-out"), (OTHER, "skipped"), (LATER, "error")]


def test_the_summary_is_a_grid_of_kernels_and_drivers() -> None:
    text = summary_text("driverforge build", build_cases(built()))
    assert "### debian12 amd64" in text
    assert "| kernel | 535.261.03 | 580.178.04 |\n|---|---|---|\n" in text
    assert "| `jit` | ✅ built 61 s | ⛔ blocked |" in text
    assert "| `6.1.0-50-cloud-amd64` | ❌ failed |  |" in text
    assert "✅ built 1" in text


def test_the_summary_has_what_went_wrong_as_text() -> None:
    text = summary_text("driverforge build", build_cases(built()))
    assert "<summary>❌ failed <code>debian12-amd64-535.261.03-6.1.0-50-cloud-amd64</code>" in text
    assert "\\x1b[31merror\\x1b[0m: &lt;too few&gt; arguments \\x00" in text
    assert "next: read the log" in text


def test_the_summary_is_cut_before_github_refuses_all_of_it() -> None:
    many = [
        Case(
            cell=f"debian{number}-amd64-535.261.03-jit",
            word="failed",
            outcome=Outcome.FAILED,
            text="x" * 2000,
        )
        for number in range(1000)
    ]
    text = summary_text("driverforge build", many)
    assert len(text.encode()) < LIMIT + 1000
    assert "parts more: this page has no room for them" in text


def test_an_image_that_is_no_drivers_has_a_line_of_its_own() -> None:
    toolkit = Case(cell="toolkit-1.20.1-amd64", word="built", outcome=Outcome.PASSED, seconds=7)
    assert "* `toolkit-1.20.1-amd64`: ✅ built 7 s" in summary_text("x", [toolkit])
    assert 'testsuite name="toolkit-1.20.1-amd64"' in junit_text("x", suites([toolkit]))
