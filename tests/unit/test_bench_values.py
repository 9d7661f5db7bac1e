"""Values of `hack/bench` as its table shows them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "hack/lib"))
from bench.result import scaled


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0, "requests", "0 requests"),
        (0.0000123, "s CPU", "12.3 µs CPU"),
        (296, "requests", "296 requests"),
        (24967, "requests", "24967 requests"),
        (4.56e6, "bytes", "4.56 MB"),
    ],
)
def test_a_value_has_a_prefix_that_fits(value: float, unit: str, shown: str) -> None:
    assert scaled(value, unit) == shown
