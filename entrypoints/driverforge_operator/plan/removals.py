"""What goes, of all that was made and that nobody wants any more.

That nobody wants an object may be because something was not seen. So what others say counts, too: a DaemonSet
of which its controller says that it has pods on nodes that are not known here; constraints of OpenShift where
no OpenShift was seen; and objects of several states at once without another word in the resource.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from driverforge_operator.operands.driver import COMPONENT, DRIVER_COMPONENT, startup_probe
from driverforge_operator.operands.manifest import manifest, pod
from driverforge_operator.operands.setting import CRIO, DOCKER
from driverforge_operator.operands.table import Operand
from driverforge_operator.plan.actions import Delete
from driverforge_operator.plan.intent import Intent
from driverforge_operator.plan.operandstates import StateNow
from driverforge_operator.plan.rejected import DRIVER_STATE
from driverforge_operator.ports import Document, Ref
from driverforge_operator.state.kinds import KIND_OF, CustomResource
from driverforge_operator.state.nodes import Node

_CONSTRAINTS = "SecurityContextConstraints"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """What goes.

    `held` has words by the uid of a resource whose objects stay because nobody can say why they should go.
    `pending` are uids of resources of which much goes: their status is written once that is done, as long as
    it does not know their generation, the word that allows it.
    """

    deletes: tuple[Delete, ...] = ()
    held: Mapping[str, str] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()


def removals(
    unwanted: Mapping[Ref, Document],
    intent: Intent,
    planned: Sequence[StateNow],
    operands: Sequence[Operand],
    *,
    objects: Mapping[Ref, Document],
    nodes: Mapping[str, Node],
    resources: Iterable[CustomResource],
    openshift: bool,
) -> Removals:
    """`unwanted` are those of the `objects` that nobody wants, as far as that can be said."""
    known = {one.metadata.uid: _observed(one) for one in resources}
    going = _explained(
        unwanted,
        known.keys(),
        objects=objects,
        nodes=nodes,
        openshift=openshift,
        namespace=intent.namespace,
    )
    held: dict[str, str] = {}
    pending: set[str] = set()
    for uid, refs in _by_owner(_unexplained(going, intent, planned, operands)).items():
        states = sorted({_state_of(ref, going[ref], operands) for ref in refs})
        if len(states) < 2:
            continue
        if not known.get(uid):
            pending.add(uid)
            continue
        held[uid] = _words(states, refs)
        going = {ref: one for ref, one in going.items() if ref not in refs}
    deletes = tuple(Delete(ref=ref, orphan=_handed_over(one, intent)) for ref, one in going.items())
    return Removals(deletes=deletes, held=held, pending=frozenset(pending))


def owners(document: Document) -> frozenset[str]:
    """The uids of those that an object goes with."""
    return frozenset(one["uid"] for one in owner_references(document))


def owner_references(document: Document) -> Sequence[Mapping[str, str]]:
    """Those that an object goes with, each with kind, name and uid."""
    found: Sequence[Mapping[str, str]] = document["metadata"].get("ownerReferences", ())
    return found


def _explained(
    unwanted: Mapping[Ref, Document],
    known: Collection[str],
    *,
    objects: Mapping[Ref, Document],
    nodes: Mapping[str, Node],
    openshift: bool,
    namespace: str,
) -> dict[Ref, Document]:
    """What may go as far as others say: nothing of a resource whose pods are on nodes that are not known.

    `known` are the uids of resources that are there. What all drivers share goes after the last of them, and
    after the last driver.
    """
    if not openshift and any(ref.kind == _CONSTRAINTS for ref in objects):
        return {}
    misseen = {uid for one in unwanted.values() if _elsewhere(one, nodes) for uid in owners(one)}
    misseen.intersection_update(known)
    served = known or any(_is_driver(one) for one in objects.values())
    shared = {Ref.of(one) for one in startup_probe(namespace)} if served else ()
    return {
        ref: one
        for ref, one in unwanted.items()
        if ref not in shared and not misseen.intersection(owners(one))
    }


def _elsewhere(document: Document, nodes: Mapping[str, Node]) -> bool:
    """Whether a DaemonSet has pods, by its controller, on more nodes than are known to fit it."""
    if not (desired := _desired(document)):
        return False
    selector = document["spec"]["template"]["spec"].get("nodeSelector") or {}
    return sum(node.fits(selector) for node in nodes.values()) < desired


def _desired(document: Document) -> int:
    """On how many nodes there are pods of a DaemonSet, as far as its controller says so; 0 for all else."""
    found: int = document.get("status", {}).get("desiredNumberScheduled", 0)
    return found if document["kind"] == "DaemonSet" else 0


def _unexplained(
    going: Mapping[Ref, Document], intent: Intent, planned: Sequence[StateNow], operands: Sequence[Operand]
) -> dict[Ref, Document]:
    """What goes though its state is asked for, but for DaemonSets that have pods nowhere."""
    asked = {one.name for one in planned if one.enabled}
    spec = intent.policy.spec if intent.policy else None
    if spec is None or intent.drivers_by_resource or spec.driver.enabled is not False:
        asked.add(DRIVER_STATE)
    return {
        ref: one
        for ref, one in going.items()
        if (ref.kind != "DaemonSet" or _desired(one)) and _state_of(ref, one, operands) in asked
    }


def _by_owner(found: Mapping[Ref, Document]) -> dict[str, list[Ref]]:
    by_uid: dict[str, list[Ref]] = {}
    for ref, one in found.items():
        for uid in owners(one):
            by_uid.setdefault(uid, []).append(ref)
    return by_uid


def _observed(resource: CustomResource) -> bool:
    """Whether all that a resource says now was decided on before."""
    return resource.status.get("observedGeneration") == resource.metadata.generation


def _handed_over(document: Document, intent: Intent) -> bool:
    """Whether it is a driver of a ClusterPolicy that leaves drivers to NVIDIADrivers now.

    Its pods stay until somebody moves their nodes on: all nodes would lose their driver at once.
    """
    policy = intent.policy
    return (
        _is_driver(document)
        and policy is not None
        and intent.drivers_by_resource
        and policy.uid in owners(document)
    )


def _is_driver(document: Document) -> bool:
    labels = document["metadata"].get("labels", {})
    return bool(document["kind"] == "DaemonSet" and labels.get(COMPONENT) == DRIVER_COMPONENT)


def _state_of(ref: Ref, document: Document, operands: Sequence[Operand]) -> str:
    """The state that an object was made for: a driver's where no operand has one of that name."""
    if _is_driver(document):
        return DRIVER_STATE
    name = ref.name.removesuffix(f"-{CRIO}").removesuffix(f"-{DOCKER}")
    return next((one.state for one in operands if name in _names(one)), DRIVER_STATE)


@cache
def _names(operand: Operand) -> Collection[str]:
    """The names of all that an operand may have."""
    objects = manifest(operand.manifest, operand.folder)
    accounts = (pod(one)["serviceAccountName"] for one in objects if one["kind"] == "DaemonSet")
    return frozenset((*(one["metadata"]["name"] for one in objects), *accounts))


def _words(states: Sequence[str], refs: Sequence[Ref]) -> str:
    """Why they stay, and what somebody may do who wants them to go."""
    told = f"objects of {', '.join(states)} are not wanted any more, and nothing in the resource says why"
    by_namespace: dict[str, list[str]] = {}
    for ref in refs:
        resource = KIND_OF[ref.api_version, ref.kind]
        plural = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        by_namespace.setdefault(ref.namespace, []).append(f"{plural}/{ref.name}")
    commands = [
        " ".join(("kubectl delete", *(("-n", namespace) if namespace else ()), *sorted(names)))
        for namespace, names in sorted(by_namespace.items())
    ]
    return "; ".join((f"{told}: they stay until you delete them", *commands))
