"""What all tiers share.

Long tests run only on request, and an error's evidence is in its report. The driver half of a node runs on
Python 3.10; builder and toolkit half need 3.11. On 3.10 a test module is collected only if nothing that it
imports belongs to them. Where `hack/test` runs these there, it asks a newer Python for the others alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from driverforge_core.errors import DriverforgeError
from support.gobuild import FULL
from support.oldpython import ONLY_NEWER, needs_newer_python

_ignored: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: long; runs only with hack/test --full (DRIVERFORGE_FULL=1)")
    # no deadline: a busy machine is no defect; the same examples every time in CI, new ones on a developer's
    # machine
    full = os.environ.get(FULL) == "1"
    settings.register_profile(
        "driverforge",
        max_examples=400 if full else 25,
        deadline=None,
        derandomize=not full and "CI" in os.environ,
    )
    settings.load_profile("driverforge")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(FULL) != "1":
        for item in items:
            if mark := item.get_closest_marker("full"):
                why = mark.kwargs.get("reason", "long")
                item.add_marker(pytest.mark.skip(reason=f"{why}: hack/test --full runs it"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # a traceback shows an exception's first line only: no output of the program that failed
    if call.excinfo and isinstance(call.excinfo.value, DriverforgeError):
        report.sections.append(("the whole error", call.excinfo.value.render()))
    return report


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    old = sys.version_info < (3, 11)
    if (old or os.environ.get(ONLY_NEWER) == "1") and needs_newer_python(collection_path) is old:
        _ignored.append(collection_path.name)
        return True
    return None


def pytest_report_collectionfinish() -> str:
    if not _ignored:
        return ""
    if sys.version_info < (3, 11):
        return f"{len(_ignored)} modules are for Python 3.11 and newer: builder, toolkit half"
    return f"{len(_ignored)} modules run on the driver half's oldest Python"
