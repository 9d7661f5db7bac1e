"""Where more is to be written than one round writes, everything has its turn."""

from __future__ import annotations

from driverforge_operator.app.control import Turns
from driverforge_operator.plan.actions import Action, Apply, Delete, PatchNode
from driverforge_operator.ports import Ref

RBAC = "rbac.authorization.k8s.io/v1"


def label(name: str) -> PatchNode:
    return PatchNode(node=name, labels={"a": "b"}, annotations={})


def apply(name: str) -> Apply:
    metadata = {"name": name, "namespace": "gpu-operator"}
    return Apply(document={"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


def rounds(turns: Turns, waiting: list[Action], count: int) -> list[str]:
    """What is written, one thing a round, while a node comes in each; plans have nodes before objects."""
    written: list[str] = []
    for number in range(count):
        planned = sorted([label(f"new-{number}"), *waiting], key=lambda one: isinstance(one, Apply))
        first, *waiting = turns.order(planned)
        turns.leave(waiting)
        written.append(str(first).partition(":")[0])
    return written


def test_a_daemonset_is_written_while_nodes_come_faster_than_they_are_labelled() -> None:
    assert "apply ConfigMap gpu-operator/driver" in rounds(Turns(), [label("a"), apply("driver")], 5)


def test_a_node_that_comes_is_labelled_while_much_is_left() -> None:
    turns, many = Turns(), [apply(str(number)) for number in range(100)]
    turns.leave(many)
    assert label("later") in turns.order([label("later"), *many])[:2]


def test_what_is_left_keeps_its_order_and_new_things_the_plans() -> None:
    turns = Turns()
    turns.leave([apply("account"), apply("pods")])
    found = turns.order([label("a"), label("b"), label("c"), apply("pods"), apply("account")])
    assert found == [apply("account"), label("a"), apply("pods"), label("b"), label("c")]


def test_what_failed_has_had_its_turn() -> None:
    turns = Turns()
    turns.leave([label("busy"), label("a"), label("b")], failed=[label("busy")])
    assert turns.order([label("a"), label("b"), label("busy")]) == [label("a"), label("b"), label("busy")]
    # and waits no longer than what is left later
    turns.leave([label("busy"), label("c")])
    assert turns.order([label("c"), label("busy")]) == [label("busy"), label("c")]


def test_what_an_action_is_about_is_a_whole_name_whatever_it_does() -> None:
    turns = Turns()
    roles = [Ref(api_version=RBAC, kind="ClusterRole", namespace="", name=f"gpu:{end}") for end in "ab"]
    turns.leave([Delete(ref=roles[1], orphan=True)])
    # a colon is no end of a name, and another way to take it away is no other thing
    found = turns.order([Delete(ref=roles[0]), Delete(ref=roles[1])])
    assert found == [Delete(ref=roles[1]), Delete(ref=roles[0])]
