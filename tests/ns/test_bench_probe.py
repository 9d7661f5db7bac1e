"""`hack/bench probe` in its smallest form: a mount namespace, a ready node, one probe."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.benchrun import smallest

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="the builder needs Python 3.11")


def test_the_smallest_probe_is_measured(tmp_path: Path) -> None:
    found = smallest("probe", tmp_path)
    assert [measure["what"] for measure in found["measures"]] == ["a probe", "a probe without its shell"]
