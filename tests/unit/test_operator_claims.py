"""Which NVIDIADrivers select a node: found by an index, the same as by asking each."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

from hypothesis import given
from hypothesis import strategies as st

from driverforge_operator.plan.intent import read_intent
from driverforge_operator.plan.placement import place
from driverforge_operator.plan.whole import plan
from driverforge_operator.state.claims import Claimants, Claims
from driverforge_operator.state.kinds import CustomResource, Metadata
from driverforge_operator.state.observed import State
from support.samples.operatorcases import driver_state

LABELS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz"), max_size=4)
SELECTORS = st.dictionaries(st.text("nm", min_size=1, max_size=4), LABELS, max_size=12)


@given(SELECTORS, st.sets(st.sampled_from("rs")), st.lists(LABELS, max_size=5))
def test_an_index_finds_what_asking_each_finds(
    selectors: dict[str, dict[str, str]], defaults: set[str], nodes: list[dict[str, str]]
) -> None:
    found = Claimants(selectors, defaults)
    for labels in [*nodes, *nodes]:
        wanted = sorted(name for name, one in selectors.items() if one.items() <= labels.items())
        assert found.of({**labels, "of-nobody": "1"}) == tuple(wanted or sorted(defaults))


def test_nodes_that_are_alike_to_all_selectors_share_one_answer() -> None:
    found = Claimants({str(number): {"gpu": "yes"} for number in range(1000)})
    first, second = (found.of({"gpu": "yes", "host": host}) for host in "ab")
    assert first is second
    assert hash(first) == hash(tuple(first))


def test_claims_are_equal_by_their_names() -> None:
    assert {Claims("ab"): 1}[Claims(("a", "b"))] == 1


def calls(act: Callable[[], object]) -> int:
    """How many functions were called: what an algorithm does, whatever the machine does beside it."""
    found = Counter[str]()

    def count(frame: FrameType, event: str, of: object) -> None:
        found[event] += 1

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return found["call"]


def crowd(count: int) -> State:
    """Resources that claim one node, and as many that claim none."""
    state = driver_state("minimal")
    demo = state.drivers["demo"]
    drivers = {
        f"{kind}-{number}": CustomResource(
            metadata=Metadata(name=f"{kind}-{number}", uid=f"{kind}-{number}"),
            spec={**demo.spec, "nodeSelector": selector},
        )
        for number in range(count)
        for kind, selector in (("all", {}), ("none", {"pool": str(number)}))
    }
    return replace(state, drivers=drivers)


def test_a_node_costs_the_same_whoever_does_not_select_it() -> None:
    def one_more(count: int) -> int:
        state = crowd(count)
        intent = read_intent(state.namespace, state.policies, state.drivers)
        (node, *_) = state.nodes.values()
        place(node, intent)
        return calls(lambda: place(node, intent))

    assert one_more(10) == one_more(300)


def test_what_a_round_costs_grows_as_the_resources_do() -> None:
    def whole(count: int) -> int:
        state = crowd(count)
        return calls(lambda: plan(state))

    small, large = whole(100), whole(400)
    assert large < 5 * small
