"""What the API server does not take, told in the custom resources that ask for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized

from driverforge_operator.plan.intent import Intent
from driverforge_operator.plan.operandstates import StateNow
from driverforge_operator.ports import Document, Ref
from driverforge_operator.state.kinds import NODE, own_namespace

DRIVER_STATE = "state-driver"
EXAMPLES = 5
"""Of nodes or objects, in a message: the API takes one of 32 KB, and a person reads less."""
_WORDS = 1000
"""Characters of a server's words about one object: a webhook may send a page."""


def rejections(
    intent: Intent,
    operands: Iterable[StateNow],
    *,
    wanted: Mapping[Ref, Document],
    objects: Mapping[Ref, Document],
    rejected: Mapping[Ref, str],
) -> Mapping[str, str]:
    """Words by the uid of a custom resource. `rejected` has the server's words by object, the oldest first.

    What no resource owns, such as a node, is told in the ClusterPolicy; where there is none, in each
    NVIDIADriver.
    """
    if not rejected:
        return {}
    states = {Ref.of(one): state.name for state in operands for one in state.objects}
    everybody = [intent.policy.uid] if intent.policy else [one.uid for one in intent.drivers]
    found: dict[str, dict[str, list[Ref]]] = defaultdict(lambda: defaultdict(list))
    for ref in rejected:
        document = wanted.get(ref) or objects.get(ref)
        owners = document["metadata"].get("ownerReferences", ()) if document else ()
        part = _part(ref, states, wanted)
        for uid in [one["uid"] for one in owners] or everybody:
            found[uid][part].append(ref)
    return {uid: "; ".join(_told(by_part, rejected)) for uid, by_part in found.items()}


def _part(ref: Ref, states: Mapping[Ref, str], wanted: Collection[Ref]) -> str:
    """Of what an object is a part. What is wanted, and of no operand's state, is a driver's."""
    if ref.kind == NODE.name:
        return "labels of nodes"
    if ref == own_namespace(ref.name).ref(ref.name):
        return "labels of the namespace"
    return states.get(ref, DRIVER_STATE) if ref in wanted else "what is no longer wanted"


def shortened(words: str) -> str:
    """A server's words, as many as a status and we keep."""
    return f"{words[:_WORDS]}…" if len(words) > _WORDS else words


def some(names: Sequence[str]) -> str:
    """Not all of thousands."""
    return " and ".join(filter(None, (*names[:EXAMPLES], more(names))))


def more(items: Sized) -> str:
    """'7 more' beside the examples, '' where there are no more.

    Many are 'at least 200 more': where they come one by one a status is not written for each.
    """
    count = len(items) - EXAMPLES
    if count <= 0:
        return ""
    unit = 10 ** (len(str(count)) - 1)
    return f"at least {count // unit * unit} more" if unit > 1 else f"{count} more"


def counted(nodes: Collection[str]) -> str:
    """'3 nodes (a, b, c)', with a few of their names."""
    noun = "node" if len(nodes) == 1 else "nodes"
    return f"{len(nodes)} {noun} ({', '.join(sorted(nodes)[:EXAMPLES])})"


def _told(by_part: Mapping[str, Sequence[Ref]], rejected: Mapping[Ref, str]) -> Iterable[str]:
    for part, refs in by_part.items():
        # thousands of nodes are rejected for one reason, and objects seldom for two. The first ones stay
        # the examples: another one that comes later changes nothing here
        yield f"Failed to reconcile {part}: {some([*map(str, refs)])}: {rejected[refs[0]]}"
