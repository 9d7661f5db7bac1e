"""`hack/bench init` in its smallest form: a real kernel, the bench's stand-ins for NVIDIA's modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.benchrun import smallest

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.full(reason="compiles and loads in guests: two minutes")
def test_the_smallest_start_is_measured(tmp_path: Path) -> None:
    found = smallest("init", tmp_path)
    assert [measure["what"] for measure in found["measures"]] == ["init", "init", "restart", "restart"]
