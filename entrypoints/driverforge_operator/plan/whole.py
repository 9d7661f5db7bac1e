"""The plan of a whole cluster, and of the parts that one change concerns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from driverforge_operator.operands.table import OPERANDS, Operand
from driverforge_operator.plan.actions import Action, Apply
from driverforge_operator.plan.admission import label_namespace
from driverforge_operator.plan.crstatus import statuses
from driverforge_operator.plan.intent import Intent, read_intent
from driverforge_operator.plan.labels import label
from driverforge_operator.plan.operandstates import StateNow, states, unclear_policy
from driverforge_operator.plan.placement import Census, Placement, place
from driverforge_operator.plan.pools import Pool, pools, questions, shared, stays, undecided
from driverforge_operator.plan.rejected import rejections
from driverforge_operator.plan.removals import removals
from driverforge_operator.ports import Document, Question, Ref
from driverforge_operator.state.kinds import CustomResource
from driverforge_operator.state.nodes import Node
from driverforge_operator.state.observed import State
from driverforge_operator.state.surroundings import Surroundings


def plan(state: State, operands: Sequence[Operand] = OPERANDS) -> list[Action]:
    """Everything that has to change: nodes first, since objects select nodes by what is written there."""
    intent = read_intent(state.namespace, state.policies, state.drivers)
    census: dict[Placement, list[str]] = defaultdict(list)
    actions: list[Action] = []
    for node in state.nodes.values():
        placement = place(node, intent)
        census[placement].append(node.name)
        if patch := label(node, placement, intent, state.validators.get(node.name, ""), operands):
            actions.append(patch)
    return [
        *actions,
        *cluster(
            intent,
            census,
            state.objects,
            state.resources,
            state.around,
            nodes=state.nodes,
            operands=operands,
        ),
    ]


def asked_for(state: State) -> frozenset[Question]:
    """The images that registries are to be asked for."""
    intent = read_intent(state.namespace, state.policies, state.drivers)
    census = {place(node, intent): (node.name,) for node in state.nodes.values()}
    return questions(intent, census, state.around)


def cluster(
    intent: Intent,
    census: Census,
    objects: Mapping[Ref, Document],
    resources: Mapping[Ref, CustomResource],
    around: Surroundings,
    *,
    nodes: Mapping[str, Node],
    operands: Sequence[Operand] = OPERANDS,
) -> list[Action]:
    """All but the nodes. What it costs depends on the number of pools, not of nodes."""
    found, planned = pools(intent, census, around), states(intent, census, around, operands)
    wanted = wanted_objects(intent, found, planned)
    actions: list[Action] = [*label_namespace(intent, around)]
    actions += [
        Apply(document=document, first=ref not in objects)
        for ref, document in wanted.items()
        if ref.kind not in around.unserved and (ref not in objects or not covers(objects[ref], document))
    ]
    unclear = undecided(intent, census, found) | unclear_policy(intent, planned)
    unwanted = {
        ref: document
        for ref, document in objects.items()
        if ref not in wanted and not stays(document, unclear)
    }
    removed = removals(
        unwanted,
        intent,
        planned,
        operands,
        objects=objects,
        nodes=nodes,
        resources=resources.values(),
        openshift=around.openshift is not None,
    )
    actions += removed.deletes
    told = rejections(intent, planned, wanted=wanted, objects=objects, rejected=around.rejected)
    said = statuses(
        intent,
        census,
        found,
        planned,
        objects=objects,
        resources=resources,
        rejected=told,
        held=removed.held,
    )
    pending = removed.pending - told.keys()
    return [*actions, *(one for one in said if resources[one.ref].metadata.uid not in pending)]


def wanted_objects(intent: Intent, found: Sequence[Pool], planned: Sequence[StateNow]) -> dict[Ref, Document]:
    """Every object that shall be there."""
    documents = [*shared(intent, found), *(one for pool in found for one in pool.documents)]
    documents += [one for state in planned for one in state.objects]
    return {Ref.of(document): document for document in documents}


def covers(found: Any, wanted: Any) -> bool:
    """Whether everything that is wanted is there, whatever the API server and others added.

    An object that somebody else changed in our fields is not covered, though it is our own. A list is
    compared entry by entry, as server-side apply keeps our order; an empty value is as good as none, for the
    server stores none.
    """
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            covers(found[key], value) if key in found else value in ({}, [], "", None)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(covers(one, other) for one, other in zip(found, wanted, strict=True))
        )
    return bool(found == wanted)
