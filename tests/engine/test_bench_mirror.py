"""`hack/bench mirror` in its smallest form: two registries, and copies by driverforge, curl and skopeo."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.benchrun import smallest
from support.process import missing


@pytest.mark.skipif(bool(missing("docker-registry", "curl", "setpriv")), reason="needs a registry and curl")
def test_the_smallest_mirror_is_measured(tmp_path: Path) -> None:
    found = [measure["what"] for measure in smallest("mirror", tmp_path)["measures"]]
    assert found[-4:] == [
        "requests with nothing to do",
        "an archive in volumes",
        "delta after a kernel update",
        "memory",
    ]
