"""What the watches have told so far, and what of it has not been decided on yet.

The same decisions as `plan.whole.plan`, made for what changed: a node's change costs one `label`, and a
`cluster` only where the node went to other objects than before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from driverforge_core import nodekeys
from driverforge_operator.app.images import Images
from driverforge_operator.app.passing import lasting
from driverforge_operator.app.settled import Settled
from driverforge_operator.plan.actions import (
    Action,
    Apply,
    Delete,
    LabelNamespace,
    PatchNode,
    SetStatus,
    StandDown,
)
from driverforge_operator.plan.admission import reads_namespace
from driverforge_operator.plan.intent import Intent, read_intent
from driverforge_operator.plan.labels import label, unknown_default, unknown_workload
from driverforge_operator.plan.placement import Placement, place
from driverforge_operator.plan.pools import questions
from driverforge_operator.plan.rejected import shortened
from driverforge_operator.plan.whole import cluster
from driverforge_operator.ports import Answer, Document, Kind, Question, Ref
from driverforge_operator.state.contents import CONTENT_KINDS, SECRETS, Content, ContentDocument, Source
from driverforge_operator.state.kinds import (
    CLUSTER_POLICY,
    NODE,
    NVIDIA_DRIVER,
    OURS,
    CustomResource,
    NamedDocument,
    NodeDocument,
    own_namespace,
)
from driverforge_operator.state.nodes import Node
from driverforge_operator.state.observed import State, selecting_keys
from driverforge_operator.state.openshift import OPENSHIFT, openshift
from driverforge_operator.state.surroundings import Surroundings
from driverforge_operator.state.validators import VALIDATOR, ValidatorPod

LOGGER = logging.getLogger("driverforge")
_DONE = frozenset(("ready", "disabled", "ignored"))
"""States of custom resources that nothing is waited for in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shelf:
    """How objects of one kind are kept: one that is there, one that is gone, and the names of all."""

    put: Callable[[Any], None]
    remove: Callable[[str], None]
    names: Callable[[], Iterable[str]]


class Store:
    """Everything known; one thread uses it."""

    def __init__(
        self,
        namespace: str,
        *,
        asks_registries: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """With `asks_registries` nothing changes before `answer` has told of the images."""
        self._namespace = namespace
        self.own_namespace = own_namespace(namespace)
        self._nodes: dict[str, Node] = {}
        self._resources: dict[str, dict[str, CustomResource]] = {
            CLUSTER_POLICY.name: {},
            NVIDIA_DRIVER.name: {},
        }
        self._objects: dict[Ref, Document] = {}
        self._contents: dict[Source, Content] = {}
        self._images = Images()
        self._openshift: dict[str, Any] = {}
        self._ready_pods: dict[str, tuple[str, str]] = {}  # validators: node, since when
        self._validators: dict[str, str] = {}
        self._unserved: set[str] = set()
        self._rejected: dict[Ref, str] = {}
        self._around = Surroundings(
            contents=self._contents,
            images=self._images.answers if asks_registries else None,
            environment=environment or {},
            unserved=self._unserved,
            rejected=self._rejected,
        )
        self._intent: Intent = read_intent(namespace, {}, {})
        self._intent_changed = False
        self._keys: frozenset[str] = frozenset()  # of labels that some NVIDIADriver selects by
        self._placements: dict[str, Placement] = {}
        self._census: dict[Placement, set[str]] = {}
        self._dirty_nodes: set[str] = set()
        self._dirty_cluster = True
        self._settled = Settled()
        self._told_workloads: dict[str, str] = {}  # by node, '' for the policy: values that are no workload
        self._shelves: dict[Kind[Any], _Shelf] = {
            NODE: _Shelf(put=self._put_node, remove=self._remove_node, names=self._nodes.keys),
            # its labels are all that counts, and we end with it
            self.own_namespace: _Shelf(put=self._read_namespace, remove=lambda _: None, names=tuple),
            VALIDATOR: _Shelf(
                put=lambda pod: self._put_validator(pod.metadata.name, pod),
                remove=lambda name: self._put_validator(name, None),
                names=self._ready_pods.keys,
            ),
            **{kind: self._of_resources(kind) for kind in (CLUSTER_POLICY, NVIDIA_DRIVER)},
            **{kind: self._of_contents(kind) for kind in CONTENT_KINDS},
            **{kind: self._of_openshift(kind) for kind in OPENSHIFT},
            **{kind: self._of_objects(kind) for kind in OURS},
        }
        self.questions: frozenset[Question] = frozenset()
        """The images that pools need, of which registries are to tell."""
        self.lacks_labels = False
        """Whether nodes have to be listed again: somebody selects by a label that was not kept."""

    @property
    def state(self) -> State:
        """The same as a value, for a plan of everything."""
        return State(
            namespace=self._namespace,
            nodes=self._nodes,
            policies=self._resources[CLUSTER_POLICY.name],
            drivers=self._resources[NVIDIA_DRIVER.name],
            objects=self._objects,
            around=self._around,
            validators=self._validators,
        )

    def put(self, kind: Kind[Any], item: Any) -> None:
        """Take in an object that is there."""
        self._shelves[kind].put(item)

    def remove(self, kind: Kind[Any], name: str) -> None:
        """An object is gone."""
        self._shelves[kind].remove(name)

    def keep_only(self, kind: Kind[Any], names: Collection[str]) -> None:
        """A list is whole: what it does not have is gone."""
        shelf = self._shelves[kind]
        for name in [one for one in shelf.names() if one not in names]:
            shelf.remove(name)

    def serves(self, kind: Kind[Any], *, served: bool) -> None:
        """Whether the server knows a kind."""
        if served == (kind.name in self._unserved):
            self._unserved ^= {kind.name}
            self._dirty_cluster = True

    def actions(self) -> list[Action]:
        """What changed since the last call asks for: nodes, then objects, then statuses."""
        self.read_intent()
        patches = [
            label(self._nodes[name], self._placements[name], self._intent, self._validators.get(name, ""))
            for name in sorted(self._dirty_nodes)
        ]
        for name in sorted(self._dirty_nodes):
            unknown = unknown_workload(self._nodes[name], self._placements[name], self._intent)
            self._tell_workload(name, f"node {name}: {nodekeys.WORKLOAD}", unknown)
        unknown = unknown_default(self._intent)
        self._tell_workload("", "ClusterPolicy: sandboxWorkloads.defaultWorkload", unknown)
        self._dirty_nodes.clear()
        found: list[Action] = [one for one in patches if one]
        if self._dirty_cluster:
            self._dirty_cluster = False
            self.questions = questions(self._intent, self._census, self._around)
            self._images.keep_only(self.questions)
            resources, nodes = self.state.resources, self._nodes
            planned = cluster(self._intent, self._census, self._objects, resources, self._around, nodes=nodes)
            found += [one for one in planned if not self._settled.covers(one, self._objects)]
        return found

    def _tell_workload(self, whose: str, place: str, found: str) -> None:
        """Log once what somebody wrote in vain."""
        if found == self._told_workloads.get(whose, ""):
            return
        self._told_workloads[whose] = found
        if found:
            known = ", ".join(nodekeys.WORKLOADS)
            LOGGER.warning("%s=%s has no effect, write one of %s", place, found, known)

    def _read_namespace(self, item: NamedDocument) -> None:
        self._know_namespace(item.metadata.labels)

    def _know_namespace(self, labels: Mapping[str, str]) -> None:
        if labels != self._around.namespace_labels:
            self._around = replace(self._around, namespace_labels=labels)
            self._dirty_cluster = True

    @property
    def wants_namespace(self) -> bool:
        """Whether labels of our namespace count: it is not watched otherwise."""
        return reads_namespace(self._intent, self._around)

    @property
    def wants_validators(self) -> bool:
        """Whether the validator's pods count: they are not watched otherwise."""
        return self._intent.ready_taint

    @property
    def unanswered(self) -> int:
        """Images of which no registry has told yet."""
        return len(self.questions - self._images.answers.keys())

    def answer(self, question: Question, answer: Answer) -> None:
        """A registry has told of an image."""
        self._dirty_cluster |= self._images.put(question, answer)

    @property
    def decides_objects(self) -> bool:
        """Whether `actions` has something to decide about objects."""
        return self._dirty_cluster or self._intent_changed

    def stand_down(self, why: str) -> list[Action]:
        """What to say while another operator serves the same resources; nothing else is decided."""
        message = f"{why}: nothing is written until it is gone"
        found = [
            (policy, StandDown(ref=ref, generation=policy.metadata.generation, message=message))
            for ref, policy in self.state.resources.items()
            if ref.kind == CLUSTER_POLICY.name
        ]
        return [
            action
            for policy, action in found
            if not any(
                (one.get("type"), one.get("message")) == (StandDown.CONDITION, message)
                for one in policy.status.get("conditions") or ()
            )
        ]

    def resource(self, ref: Ref) -> CustomResource | None:
        return self._resources.get(ref.kind, {}).get(ref.name)

    @property
    def outcome(self) -> int:
        """1: all custom resources are ready, or do not count; 0: some are not; -1: there is none."""
        said = [one.status.get("state") for found in self._resources.values() for one in found.values()]
        return int(_DONE.issuperset(said)) if said else -1

    @property
    def gpu_nodes(self) -> int:
        return sum(len(names) for placement, names in self._census.items() if placement.gpu)

    @property
    def has_features(self) -> bool:
        """Whether Node Feature Discovery has labelled some node."""
        return any(key.startswith(nodekeys.FEATURE) for node in self._nodes.values() for key in node.labels)

    def retry(self, action: Action) -> None:
        """An action was not carried out: decide again what it was for."""
        if isinstance(action, PatchNode):
            if action.node in self._nodes:
                self._dirty_nodes.add(action.node)
        else:
            self._dirty_cluster = True

    def reject(self, action: Action, words: str) -> None:
        """The server does not take an action, and said why."""
        if isinstance(action, SetStatus | StandDown):
            return  # nobody would read it there
        words = shortened(words)
        if lasting(self._rejected.get(action.ref, "")) != lasting(words):
            self._rejected[action.ref] = words
            self._dirty_cluster = True

    def keep_rejected(self, wanted: Collection[Ref]) -> None:
        """Forget what was rejected of all other objects: nobody asks for it any more."""
        for ref in [one for one in self._rejected if one not in wanted]:
            self._accept(ref)

    def _accept(self, ref: Ref) -> None:
        self._dirty_cluster |= self._rejected.pop(ref, None) is not None

    def carried_out(self, action: Action, written: Document | None) -> None:
        """Know a write before its watch tells it, so that nothing is written twice."""
        self._accept(action.ref)
        match action:
            case Apply():
                self._objects[action.ref] = written or action.document
                self._settled.note(action.document, self._objects[action.ref])
            case Delete():
                self._objects.pop(action.ref, None)
            case SetStatus() | StandDown():
                known = self._resources[action.ref.kind].get(action.ref.name)
                if known and written:
                    changed = msgspec.structs.replace(known, status=dict(written))
                    self._resources[action.ref.kind][action.ref.name] = changed
            case LabelNamespace(labels=labels):
                self._know_namespace({**(self._around.namespace_labels or {}), **labels})
            case PatchNode():
                pass

    def _of_resources(self, kind: Kind[CustomResource]) -> _Shelf:
        known = self._resources[kind.name]

        def put(item: CustomResource) -> None:
            before = known.get(item.metadata.name)
            if before == item:
                return  # what was written here, told by the watch
            known[item.metadata.name] = item
            self._dirty_cluster = True
            # another status alone is nothing new to decide about nodes
            if before is None or (before.spec, before.metadata) != (item.spec, item.metadata):
                self._intent_changed = True

        def remove(name: str) -> None:
            known.pop(name, None)
            self._intent_changed = True

        return _Shelf(put=put, remove=remove, names=known.keys)

    def _of_contents(self, kind: Kind[ContentDocument]) -> _Shelf:
        source = partial(Source, secret=kind is SECRETS)
        return _Shelf(
            put=lambda item: self._put_content(source(name=item.metadata.name), Content.of(item)),
            remove=lambda name: self._put_content(source(name=name), None),
            names=lambda: [one.name for one in self._contents if one.secret is (kind is SECRETS)],
        )

    def _of_openshift(self, kind: Kind[Any]) -> _Shelf:
        return _Shelf(
            put=lambda item: self._put_openshift(kind, item),
            remove=lambda _: self._put_openshift(kind, None),
            names=lambda: (kind.only,),
        )

    def _of_objects(self, kind: Kind[Document]) -> _Shelf:
        ref = partial(kind.ref, namespace=self._namespace if kind.namespaced else "")

        def put(item: Document) -> None:
            self._objects[Ref.of(item)] = item
            self._dirty_cluster = True

        def remove(name: str) -> None:
            self._objects.pop(ref(name), None)
            self._dirty_cluster = True

        return _Shelf(
            put=put,
            remove=remove,
            names=lambda: [one.name for one in self._objects if one == ref(one.name)],
        )

    def _put_content(self, source: Source, content: Content | None) -> None:
        if self._contents.get(source) == content:
            return
        if content is None:
            del self._contents[source]
        else:
            self._contents[source] = content
        self._dirty_cluster = True

    def _put_openshift(self, kind: Kind[Any], item: Any) -> None:
        self._openshift[kind.name] = item
        found = openshift(self._openshift)
        # a ClusterVersion tells of its operators all the time
        if found != self._around.openshift:
            self._around = replace(self._around, openshift=found)
            self._dirty_cluster = True

    def _put_validator(self, name: str, pod: ValidatorPod | None) -> None:
        """Of pods that are ready, the one told last counts for its node."""
        node, since = self._ready_pods.pop(name, ("", ""))
        if self._validators.get(node) == since:
            del self._validators[node]
            self._dirty_nodes.update({node} & self._nodes.keys())
        if pod is not None and pod.ready_since:
            node = pod.spec.node_name
            self._ready_pods[name] = (node, pod.ready_since)
            self._validators[node] = pod.ready_since
            self._dirty_nodes.update({node} & self._nodes.keys())

    def _put_node(self, document: NodeDocument) -> None:
        node = Node.of(document, selected_by=self._keys)
        if self._nodes.get(node.name) == node:
            return  # a heartbeat
        self._nodes[node.name] = node
        self._move(node.name, place(node, self._intent))
        self._dirty_nodes.add(node.name)

    def _remove_node(self, name: str) -> None:
        self._move(name, None)
        self._nodes.pop(name, None)
        self._told_workloads.pop(name, None)
        self._dirty_nodes.discard(name)

    def read_intent(self) -> None:
        """Read the custom resources again if one changed: every node may belong elsewhere now.

        Once for all that changed meanwhile: there may be thousands.
        """
        if not self._intent_changed:
            return
        self._intent_changed = False
        drivers = self._resources[NVIDIA_DRIVER.name]
        self._intent = read_intent(self._namespace, self._resources[CLUSTER_POLICY.name], drivers)
        for name, node in self._nodes.items():
            self._move(name, place(node, self._intent))
        self._dirty_nodes.update(self._nodes)
        self._dirty_cluster = True
        keys = selecting_keys(drivers)
        self.lacks_labels = self.lacks_labels or bool(self._nodes and not keys <= self._keys)
        self._keys = keys

    def _move(self, name: str, placement: Placement | None) -> None:
        """Count a node where it belongs now."""
        before = self._placements.pop(name, None)
        if placement is not None:
            self._placements[name] = placement
        if before == placement:
            return
        if before is not None:
            self._census[before].discard(name)
            self._dirty_cluster |= before.told or not self._census[before]
            if not self._census[before]:
                del self._census[before]
        if placement is not None:
            self._dirty_cluster |= placement.told or placement not in self._census
            self._census.setdefault(placement, set()).add(name)
