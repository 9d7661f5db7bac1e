"""Which NVIDIADrivers select a node: found by an index, the same as by asking each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from driverforge_operator.plan.claims import Claims, Selectors

LABELS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz"), max_size=4)
SELECTORS = st.dictionaries(st.text("nm", min_size=1, max_size=4), LABELS, max_size=12)


@given(SELECTORS, st.lists(LABELS, max_size=5))
def test_an_index_finds_what_asking_each_finds(
    selectors: dict[str, dict[str, str]], nodes: list[dict[str, str]]
) -> None:
    found = Selectors(selectors)
    for labels in [*nodes, *nodes]:
        wanted = sorted(name for name, one in selectors.items() if one.items() <= labels.items())
        assert found.matching({**labels, "of-nobody": "1"}) == tuple(wanted)


def test_nodes_that_are_alike_to_all_selectors_share_one_answer() -> None:
    found = Selectors({str(number): {"gpu": "yes"} for number in range(1000)})
    first, second = (found.matching({"gpu": "yes", "host": host}) for host in "ab")
    assert first is second
    assert hash(first) == hash(tuple(first))


def test_claims_are_equal_by_their_names() -> None:
    assert {Claims("ab"): 1}[Claims(("a", "b"))] == 1
