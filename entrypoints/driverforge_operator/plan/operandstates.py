"""The objects of a ClusterPolicy's operands, state by state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from driverforge_core import nodekeys
from driverforge_operator.crd.clusterpolicy import ClusterPolicySpec
from driverforge_operator.crd.read import Problem
from driverforge_operator.operands.manifest import Manifest, owner_of, pod
from driverforge_operator.operands.render import Rendered, render
from driverforge_operator.operands.setting import CONTAINERD, CRIO, DOCKER, Setting
from driverforge_operator.operands.table import OPERANDS, Operand, image_variables
from driverforge_operator.plan.intent import Intent, Policy
from driverforge_operator.plan.placement import Census
from driverforge_operator.ports import Document, Ref
from driverforge_operator.state.kinds import CLUSTER_POLICY
from driverforge_operator.state.surroundings import Surroundings

_RUNTIMES = (CONTAINERD, DOCKER, CRIO)
"""Runtimes that operands know; where nodes differ, the first has the objects with NVIDIA's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateNow:
    """What becomes of one state. Where there are `problems`, all its objects stay as they are."""

    name: str
    enabled: bool
    objects: tuple[Document, ...] = ()
    problems: tuple[Problem, ...] = ()


def unclear_policy(intent: Intent, found: Iterable[StateNow]) -> frozenset[str]:
    """The uid of the ClusterPolicy while nobody can say all that it wants: nothing of it is taken away."""
    if intent.policy is None:
        return frozenset()
    unclear = intent.policy.spec is None or any(one.problems for one in found)
    return frozenset({intent.policy.uid} if unclear else ())


def states(
    intent: Intent, census: Census, around: Surroundings, operands: Sequence[Operand] = OPERANDS
) -> tuple[StateNow, ...]:
    """All states but the driver's, in order; none without a ClusterPolicy that can be read."""
    policy = intent.policy
    if policy is None or policy.spec is None:
        return ()
    settings = _settings(policy, policy.spec, intent.namespace, census, around)
    variables = image_variables(operands)
    return tuple(_state(operand, policy, settings, variables) for operand in operands)


def operands_wait_for(found: Iterable[StateNow], objects: Mapping[Ref, Document]) -> dict[str, list[str]]:
    """What each state waits for that is not ready: an image that nobody names, or pods."""
    told = {
        one.name: [
            *map(str, one.problems),
            *(
                words
                for document in one.objects
                if document["kind"] == "DaemonSet"
                if (words := _waits_for(objects.get(Ref.of(document), document)))
            ),
        ]
        for one in found
    }
    return {name: words for name, words in told.items() if words}


def _waits_for(workload: Document) -> str:
    status, metadata = workload.get("status", {}), workload["metadata"]
    # a generation is the API server's: one that was not applied yet has none
    if status.get("observedGeneration", 0) < metadata.get("generation", 1):
        return f"{metadata['name']} is not rolled out yet"
    desired = status.get("desiredNumberScheduled", 0)
    ready = min(status.get("numberAvailable", 0), status.get("updatedNumberScheduled", 0))
    return "" if ready == desired else f"{metadata['name']}: {ready} of {desired} pods are ready"


def _state(
    operand: Operand, policy: Policy, settings: tuple[Setting, ...], variables: Mapping[str, str]
) -> StateNow:
    first, *_ = settings
    if not operand.enabled(first.spec):
        return StateNow(name=operand.state, enabled=False)
    owner = owner_of(CLUSTER_POLICY, policy.name, policy.uid)
    rendered = [render(operand, setting, owner, variables) for setting in settings]
    problems = tuple(dict.fromkeys(problem for one in rendered for problem in one.problems))
    if problems:
        return StateNow(name=operand.state, enabled=True, problems=problems)
    return StateNow(name=operand.state, enabled=True, objects=tuple(_joined(settings, rendered)))


def _settings(
    policy: Policy, spec: ClusterPolicySpec, namespace: str, census: Census, around: Surroundings
) -> tuple[Setting, ...]:
    """One for each container runtime of nodes with GPUs; one where there is none."""
    of_nodes = {placement.runtime for placement in census if placement.gpu}
    return tuple(
        Setting(
            namespace=namespace,
            spec=spec,
            runtime=runtime,
            oses=tuple(sorted({placement.os for placement in census if placement.gpu and placement.os})),
            gpus=bool(of_nodes),
            environment=around.environment,
            contents=around.contents,
            ready_taint=policy.ready_taint,
            openshift=around.openshift is not None,
        )
        for runtime in [one for one in _RUNTIMES if one in of_nodes] or [CONTAINERD]
    )


def _joined(settings: Sequence[Setting], rendered: Sequence[Rendered]) -> list[Manifest]:
    """The objects of all runtimes: what is not the same for all is there once for each runtime."""
    usual, *others = (one.objects for one in rendered)
    runtimes = [one.runtime for one in settings]
    found = []
    for place, one in enumerate(usual):
        apart = {
            runtime: objects[place]
            for runtime, objects in zip(runtimes[1:], others, strict=True)
            if objects[place] != one
        }
        found += [_on_others(one, tuple(apart)) if apart else one]
        found += [_on(other, runtime) for runtime, other in apart.items()]
    return found if settings[0].gpus else [one for one in found if one["kind"] != "DaemonSet"]


def _on(workload: Manifest, runtime: str) -> Manifest:
    """For nodes of one runtime alone, under a name of its own."""
    workload["metadata"]["name"] += f"-{runtime}"
    template = workload["spec"]["template"]["metadata"]
    selector = workload["spec"]["selector"]["matchLabels"]
    for labels in (workload["metadata"]["labels"], selector, template["labels"]):
        if "app" in labels:
            labels["app"] += f"-{runtime}"
    pod(workload)["nodeSelector"][nodekeys.RUNTIME] = runtime
    return workload


def _on_others(workload: Manifest, runtimes: Sequence[str]) -> Manifest:
    """For all nodes but those of some runtimes. A node with containerd has no label that says so."""
    expression = {"key": nodekeys.RUNTIME, "operator": "NotIn", "values": list(runtimes)}
    terms = [{"matchExpressions": [expression]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod(workload)["affinity"] = {"nodeAffinity": required}
    return workload
