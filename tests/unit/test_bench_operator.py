"""What `hack/bench operator` says below its table."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "hack/lib"))
from bench.benchmarks.operator import MIB, Cost, described

BASE = Cost(
    nodes=100,
    labelled=1.5,
    requests=Counter({"patch nodes": 100, "list nodes": 1}),
    cpu=1.0,
    memory=60 * MIB,
    at_rest=3,
    lease=6.0,
    one={"added": Counter({"patch nodes": 1}), "deleted": Counter()},
)


def of(nodes: int, memory: int) -> list[str]:
    found = described(replace(BASE, nodes=nodes, memory=memory), base=BASE)
    return [line.strip() for line in found if "memory" in line]


def test_a_size_is_described() -> None:
    assert list(described(BASE, base=BASE)) == [
        "100 nodes: all labelled 1.5 s after the start",
        "  requests: 100 patch nodes, 1 list nodes",
        "  one node added: 1 patch nodes",
        "  one node deleted: none",
        "  lease: 6 requests a minute at rest",
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (4900 * 4_000, ["4.0 KB a node over 100 nodes (bar 10 KB)", "79 MiB at most (bar 150 MiB)"]),
        (4900 * 10_000, ["10.0 KB a node over 100 nodes (bar 10 KB)", "107 MiB at most (bar 150 MiB)"]),
        (
            4900 * 20_000,
            ["20.0 KB a node over 100 nodes (bar 10 KB, MISSED)", "153 MiB at most (bar 150 MiB, MISSED)"],
        ),
    ],
)
def test_memory_is_held_against_its_bars(more: int, said: list[str]) -> None:
    assert of(5000, BASE.memory + more) == [f"memory: {one}" for one in said]


def test_the_bar_for_all_is_that_of_its_size() -> None:
    assert of(1000, 200 * MIB) == ["memory: 163.1 KB a node over 100 nodes (bar 10 KB, MISSED)"]
