"""`hack/bench operator` in its smallest form: one node a pool, against a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.benchrun import smallest
from support.cluster import kubernetes_build
from support.skipping import provided

# the programs may have to be compiled first
pytestmark = pytest.mark.timeout(3600)


def test_the_smallest_cluster_is_measured(tmp_path: Path) -> None:
    provided(kubernetes_build.programs)
    found = smallest("operator", tmp_path)
    assert [measure["what"] for measure in found["measures"]][:3] == [
        "requests until labelled",
        "CPU until labelled",
        "memory, most",
    ]
