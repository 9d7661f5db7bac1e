"""A cluster at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driverforge_operator.ports import Document, Reader, Ref
from driverforge_operator.state.contents import CONTENTS, SECRETS, Content, Source
from driverforge_operator.state.kinds import (
    CLUSTER_POLICY,
    NODE,
    NVIDIA_DRIVER,
    OURS,
    OURS_SELECTOR,
    CustomResource,
    own_namespace,
)
from driverforge_operator.state.nodes import Node
from driverforge_operator.state.openshift import OPENSHIFT, openshift
from driverforge_operator.state.surroundings import Surroundings
from driverforge_operator.state.validators import VALIDATOR, VALIDATOR_SELECTOR, wants_ready_taint


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that is known of a cluster. `objects` are the ones that we made, without their status.

    `validators` says of nodes since when their validator's pod is ready.
    """

    namespace: str
    nodes: Mapping[str, Node]
    policies: Mapping[str, CustomResource]
    drivers: Mapping[str, CustomResource]
    objects: Mapping[Ref, Document]
    around: Surroundings = field(default_factory=Surroundings)
    validators: Mapping[str, str] = field(default_factory=dict)

    @property
    def resources(self) -> dict[Ref, CustomResource]:
        """All custom resources."""
        both = ((CLUSTER_POLICY, self.policies), (NVIDIA_DRIVER, self.drivers))
        return {kind.ref(name): one for kind, found in both for name, one in found.items()}


def observe(reader: Reader, namespace: str, environment: Mapping[str, str] | None = None) -> State:
    """Read everything once."""
    ours = {kind.name: list(reader.pages(kind, labels=OURS_SELECTOR)) for kind in OURS}
    drivers = {one.metadata.name: one for page in reader.pages(NVIDIA_DRIVER) for one in page.items}
    policies = {one.metadata.name: one for page in reader.pages(CLUSTER_POLICY) for one in page.items}
    keys = selecting_keys(drivers)
    return State(
        namespace=namespace,
        nodes={
            one.metadata.name: Node.of(one, selected_by=keys)
            for page in reader.pages(NODE)
            for one in page.items
        },
        policies=policies,
        drivers=drivers,
        validators=observe_validators(reader) if any(map(wants_ready_taint, policies.values())) else {},
        objects={Ref.of(one): one for pages in ours.values() for page in pages for one in page.items},
        around=Surroundings(
            contents=observe_contents(reader),
            openshift=openshift(
                {kind.name: one for kind in OPENSHIFT for page in reader.pages(kind) for one in page.items}
            ),
            environment=environment or {},
            namespace_labels=observe_namespace(reader, namespace),
            unserved={name for name, pages in ours.items() if not all(page.served for page in pages)},
        ),
    )


def observe_namespace(reader: Reader, name: str) -> Mapping[str, str] | None:
    """The labels of our namespace; None where it was not dumped."""
    found = (one for page in reader.pages(own_namespace(name)) for one in page.items)
    return next((one.metadata.labels for one in found), None)


def observe_validators(reader: Reader) -> dict[str, str]:
    """Since when validators are ready, by their nodes; those that are not are left out."""
    return {
        one.spec.node_name: one.ready_since
        for page in reader.pages(VALIDATOR, labels=VALIDATOR_SELECTOR)
        for one in page.items
        if one.ready_since
    }


def observe_contents(reader: Reader) -> dict[Source, Content]:
    """What the ConfigMaps and Secrets of our namespace hold."""
    return {
        Source(secret=kind is SECRETS, name=one.metadata.name): Content.of(one)
        for kind, labels in CONTENTS
        for page in reader.pages(kind, labels=labels)
        for one in page.items
    }


def selecting_keys(drivers: Mapping[str, CustomResource]) -> frozenset[str]:
    """Keys of labels by which NVIDIADriver resources choose nodes."""
    selectors = (one.spec.get("nodeSelector") for one in drivers.values())
    return frozenset(key for found in selectors if isinstance(found, dict) for key in found)
