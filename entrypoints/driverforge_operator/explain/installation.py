"""What is wrong with an installation: rules on what was read of it, the worst first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain
from typing import Any

from driverforge_core import nodekeys
from driverforge_operator.explain.causes import REFUSED, UNKNOWN, likely
from driverforge_operator.explain.documents import DoctorDocument
from driverforge_operator.explain.finding import Finding
from driverforge_operator.explain.scene import Sight
from driverforge_operator.explain.sentence import finding_document
from driverforge_operator.ports import Document, Kind, Right
from driverforge_operator.state.contents import SECRETS
from driverforge_operator.state.kinds import (
    CLUSTER_POLICY,
    DEFINITION,
    EVENT,
    LEASE,
    NODE,
    NVIDIA_DRIVER,
    OURS,
    THEIR_DEPLOYMENT,
)
from driverforge_operator.state.workloads import DAEMON_SET, DEPLOYMENT, MACHINE, NAMESPACE, Deployment

_SHOWN = 10  # fields, rights and events of one finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """`ours` are the definitions of custom resources that this version needs, `served` those of the cluster.

    `namespace` is None where it could not be read; `refused` are rights that the user lacks, of which a dump
    (not `live`) says nothing. What was not dumped (`Sight.undumped`), or may not be read (`Sight.hidden`),
    may be there: neither is judged.
    """

    sight: Sight
    ours: Sequence[Document]
    served: Mapping[str, Document]
    namespace: Document | None
    deployments: Sequence[Deployment]
    refused: Sequence[Right]
    live: bool

    @property
    def operators(self) -> dict[str, list[Deployment]]:
        """Deployments by the operator that they run, however they are named."""
        found = {name: [one for one in self.deployments if _operator(one) == name] for name in _OPERATORS}
        return {name: deployments for name, deployments in found.items() if deployments}


_NVIDIA, _OURS = _OPERATORS = ("gpu-operator", "driverforge-operator")
# the chart's container has only arguments: its image says which program it is
_CHARTS = {"app.kubernetes.io/name": "driverforge", "app.kubernetes.io/component": "operator"}


def _operator(deployment: Deployment) -> str:
    """The operator that a container of it is named for or starts, or that its labels say; '' for none."""
    if _CHARTS.items() <= deployment.metadata.labels.items():
        return _OURS
    containers = deployment.spec.template.spec.containers
    words = [word for one in containers for word in (one.name, *one.command, *one.args)]
    programs = {word.rpartition("/")[2] for word in words}
    return next((one for one in _OPERATORS if one in programs), "")


_FOLLOW = ("list", "watch")
_NEEDED: tuple[tuple[Sequence[Kind[Any]], str, tuple[str, ...]], ...] = (
    ((NODE,), "", (*_FOLLOW, "get", "patch")),
    ((CLUSTER_POLICY, NVIDIA_DRIVER), "", _FOLLOW),
    ((CLUSTER_POLICY, NVIDIA_DRIVER), "status", ("patch",)),
    (OURS, "", (*_FOLLOW, "create", "patch", "delete")),
    ((SECRETS, THEIR_DEPLOYMENT), "", _FOLLOW),
    ((LEASE,), "", ("get", "create", "patch")),
    ((EVENT,), "", ("create", "patch")),
)
"""Kinds, a part of them, and what is done with it."""


def rights(namespace: str) -> list[Right]:
    """What the operator has to be allowed."""
    return [
        Right(
            verb=verb,
            group=kind.group,
            plural=kind.plural,
            part=part,
            namespace=namespace if kind.namespaced else "",
        )
        for kinds, part, verbs in _NEEDED
        for kind in kinds
        for verb in verbs
    ]


def examine(installation: Installation) -> list[tuple[str, Finding]]:
    """What each rule found, with the part of the installation that it is about."""
    return [(part, finding) for part, rule in _RULES for finding in rule(installation)]


def _definitions(installation: Installation) -> Iterator[Finding]:
    if not installation.served and installation.sight.hides(DEFINITION):
        return
    for definition in installation.ours:
        name = definition["metadata"]["name"]
        served = installation.served.get(name)
        if served is None:
            yield Finding(
                what=f"{name} is not installed",
                cause="crd-missing",
                told="nobody can write such a resource, and an operator that watches it finds none",
                command=_INSTALL,
            )
        elif lacking := sorted(_fields(definition) - _fields(served)):
            yield Finding(
                what=f"{name} lacks {_counted(lacking, 'field')} that this version has",
                evidence=_first(lacking),
                cause="crd-older",
                told="an upgrade left the definition as it was: the API server drops these fields silently",
                command=_INSTALL,
            )


_INSTALL = "kubectl apply --server-side --force-conflicts -f charts/driverforge/crds"


def _fields(definition: Document) -> set[str]:
    """Paths of all fields of the version that is stored: 'spec.driver.image'."""
    for version in definition["spec"]["versions"]:
        if version.get("storage"):
            schema = version.get("schema", {}).get("openAPIV3Schema", {})
            return {path for path in _paths(schema, "") if path.startswith("spec.")}
    return set()


def _paths(schema: Mapping[str, Any], at: str) -> Iterator[str]:
    for name, one in (schema.get("properties") or {}).items():
        path = f"{at}.{name}".lstrip(".")
        yield path
        yield from _paths(one, path)
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), Mapping):
            yield from _paths(schema[key], f"{at}{mark}")


def _operators(installation: Installation) -> Iterator[Finding]:
    found = installation.operators
    if len(found) > 1:
        theirs = found[_NVIDIA][0].metadata
        yield Finding(
            what="two operators are in this cluster",
            evidence=tuple(
                f"{name}: Deployment {', '.join(str(one.metadata) for one in deployments)}"
                for name, deployments in found.items()
            ),
            cause="two-operators",
            told="both read the same custom resources; ours leaves such a cluster alone",
            command=f"kubectl scale deployment -n {theirs.namespace} {theirs.name} --replicas=0"
            "  # or uninstall either",
        )
    if not found and not installation.sight.hides(DEPLOYMENT):
        yield Finding(
            what="no operator is deployed",
            cause="no-operator",
            told="it was never installed, or runs outside of this cluster",
            command="kubectl get deployments -A | grep -i -e gpu-operator -e driverforge",
        )
    for one in chain.from_iterable(found.values()):
        if not one.status.available_replicas:
            yield _down(one, installation.sight)


def _down(operator: Deployment, sight: Sight) -> Finding:
    """An operator without a running pod: why, where warnings of its ReplicaSets or pods say so."""
    metadata = operator.metadata
    what = f"Deployment {metadata} has no running pod"
    about = {
        key: warnings
        for key, warnings in sight.warnings_by_object.items()
        if key[0] in ("ReplicaSet", "Pod")
        and key[1] == metadata.namespace
        and re.fullmatch(rf"{re.escape(metadata.name)}-[a-z0-9]+(-[a-z0-9]+)?", key[2])
    }
    said = list(dict.fromkeys(f"{one.reason}: {one.message}" for one in chain(*about.values())))
    row = likely(said, "")
    # an operator's image is not made as a driver's is
    if row is not UNKNOWN and "{select}" not in row.command:
        image = next((one.image for one in operator.spec.template.spec.containers), "")
        pod = next((name for kind, _, name in about if kind == "Pod"), "POD")
        words = row.filled(namespace=metadata.namespace, image=image, pod=pod)
        return Finding.by(words, what, _first(said))
    return Finding(
        what=what,
        evidence=_first(said),
        cause="operator-down",
        told="nothing in the cluster follows the custom resources now",
        command=f"kubectl logs -n {metadata.namespace} deploy/{metadata.name} --previous",
    )


def _rights(installation: Installation) -> Iterator[Finding]:
    refused = installation.refused
    if refused:
        own = installation.operators.get(_OURS)
        namespace, name = (
            (own[0].metadata.namespace, own[0].metadata.name)
            if own
            else (installation.sight.namespace, _OURS)
        )
        yield Finding(
            what=f"this user lacks {_counted(refused, 'right')} that the operator needs",
            evidence=_first(list(map(str, refused))),
            cause="rights",
            told="it matters if this user is the operator's: run the doctor in its pod",
            command=f"kubectl exec -n {namespace} deploy/{name} -- driverforge-operator doctor",
        )


def _first(lines: Sequence[str]) -> tuple[str, ...]:
    more = len(lines) - _SHOWN
    return (*lines[:_SHOWN], f"and {more} more") if more > 0 else tuple(lines)


def _counted(items: Sized, noun: str) -> str:
    return f"{len(items)} {noun}" if len(items) == 1 else f"{len(items)} {noun}s"


def _features(installation: Installation) -> Iterator[Finding]:
    nodes = installation.sight.nodes.values()
    if nodes and not any(key.startswith(nodekeys.FEATURE) for node in nodes for key in node.labels):
        yield Finding(
            what="no node has a label of Node Feature Discovery",
            cause="nfd-missing",
            told="without it no node is known to have a GPU, and both operators report ready",
            command="kubectl get daemonsets -A | grep -e node-feature-discovery -e nfd",
        )
    elif nodes and not any(node.gpu for node in nodes):
        yield Finding(
            what="Node Feature Discovery found no GPU of NVIDIA's on any node",
            cause="no-gpu",
            told="there is none, or its worker does not run on the nodes that have one (taints)",
            command="kubectl get pods -A -o wide | grep -e node-feature-discovery -e nfd",
        )


def _security(installation: Installation) -> Iterator[Finding]:
    if installation.namespace is None:
        return
    metadata = installation.namespace["metadata"]
    level = (metadata.get("labels") or {}).get("pod-security.kubernetes.io/enforce", "")
    if level and level != "privileged":
        yield Finding(
            what=f"namespace {metadata['name']} enforces the {level} pod security standard",
            cause="psa",
            told="driver and toolkit are privileged pods, which the API server refuses there",
            command=f"kubectl label namespace {metadata['name']} --overwrite "
            "pod-security.kubernetes.io/enforce=privileged",
        )


def _admission(installation: Installation) -> Iterator[Finding]:
    """Pods that the API server refused lately."""
    sight = installation.sight
    for one in sight.daemonsets:
        metadata = one.metadata
        events = sight.warnings_by_object.get(("DaemonSet", metadata.namespace, metadata.name), ())
        said = list(dict.fromkeys(event.message for event in events if event.reason == "FailedCreate"))
        if not said:
            continue
        advice = likely(said, "", otherwise=REFUSED).filled(
            namespace=metadata.namespace, daemonset=metadata.name, pod=metadata.name
        )
        what = f"the API server refuses pods of DaemonSet {metadata}"
        yield Finding.by(advice, what, said[-_SHOWN:])


def _resources(installation: Installation) -> Iterator[Finding]:
    sight = installation.sight
    if not sight.resources and not sight.hides(CLUSTER_POLICY, NVIDIA_DRIVER):
        yield Finding(
            what="there is no ClusterPolicy and no NVIDIADriver",
            cause="not-asked",
            told="nothing is asked for, so nothing is deployed",
            command="kubectl get clusterpolicies,nvidiadrivers  # a first one: docs/operator.md",
        )
    if len(sight.policies) > 1:
        yield Finding(
            what=f"there are {len(sight.policies)} ClusterPolicies, and one counts",
            evidence=tuple(sorted(sight.policies)),
            cause="resource-ignored",
            told="the oldest counts, the others are ignored",
            command="kubectl get clusterpolicies --sort-by=.metadata.creationTimestamp",
        )


def _workloads(installation: Installation) -> Iterator[Finding]:
    """Nodes whose label asks for a workload that there is not."""
    sight = installation.sight
    sandbox = sight.policy.spec.get("sandboxWorkloads") if sight.policy else None
    if not isinstance(sandbox, Mapping) or not sandbox.get("enabled"):
        return
    asked = {name: node.labels.get(nodekeys.WORKLOAD, "") for name, node in sight.nodes.items() if node.gpu}
    wrong = {name: value for name, value in asked.items() if value and value not in nodekeys.WORKLOADS}
    if wrong:
        name, usual = min(wrong), str(sandbox.get("defaultWorkload") or nodekeys.WORKLOADS[0])
        others = " or ".join(value for value in nodekeys.WORKLOADS if value != usual)
        have = "has" if len(wrong) == 1 else "have"
        yield Finding(
            what=f"{_counted(wrong, 'node')} {have} an unknown {nodekeys.WORKLOAD}",
            evidence=_first([f"{name}: {value}" for name, value in sorted(wrong.items())]),
            cause="workload-unknown",
            told="they get sandboxWorkloads.defaultWorkload as if they had no such label",
            command=f"kubectl label node {name} --overwrite {nodekeys.WORKLOAD}={usual}  # or {others}",
        )


_RULES: tuple[tuple[str, Callable[[Installation], Iterator[Finding]]], ...] = (
    ("operators", _operators),
    ("definitions", _definitions),
    ("namespace", _security),
    ("admission", _admission),
    ("rights", _rights),
    ("Node Feature Discovery", _features),
    ("custom resources", _resources),
    ("workloads", _workloads),
)


def looked_at(installation: Installation) -> tuple[str, ...]:
    """What there was to judge. That nothing was found says little of a dump with nodes alone."""
    sight = installation.sight

    def read(kind: Kind[Any], what: str, told: str) -> str:
        if sight.lacks(kind):
            return f"{what}: not in the dump, and not judged"
        return f"{what} may not be read" if sight.hides(kind) else told

    gpus = sum(node.gpu for node in sight.nodes.values())
    namespace = f"namespace {sight.namespace}"
    return (
        read(MACHINE, "nodes", f"{_counted(sight.nodes, 'node')}, {gpus} with a GPU"),
        _operators_seen(installation),
        read(DEFINITION, "definitions", f"{_counted(installation.served, 'definition')} of nvidia.com"),
        read(DAEMON_SET, "DaemonSets", f"{_counted(sight.daemonsets, 'DaemonSet')} of operands"),
        read(EVENT, "warnings", _counted(sight.warnings, "warning")),
        namespace if installation.namespace else read(NAMESPACE, namespace, f"no {namespace}"),
        "rights of this user" if installation.live else "rights: a dump has none, and they are not judged",
    )


def _operators_seen(installation: Installation) -> str:
    sight, found = installation.sight, ", ".join(installation.operators)
    if not found and sight.lacks(DEPLOYMENT):
        return "operators: no Deployment is in the dump, and none is judged"
    if not found and sight.hides(DEPLOYMENT):
        return "operators: those of other namespaces may not be read"
    return f"operators: {found or 'none'}"


def as_text(found: Sequence[tuple[str, Finding]], installation: Installation) -> str:
    """What the doctor says to people."""
    parts = [
        "\n".join(
            [
                f"{finding.cause}: {finding.what}",
                *(f"  | {line}" for line in finding.evidence),
                f"  why:  {finding.told}",
                f"  next: {finding.command}",
            ]
        )
        for _, finding in found
    ]
    parts += [f"looked at: {'; '.join(looked_at(installation))}"]
    parts += [f"not read: {one}" for one in installation.sight.unread]
    nothing = "nothing found" if installation.live else "nothing found in what the dump has"
    return "\n\n".join(parts if found else [nothing, *parts])


def document(found: Sequence[tuple[str, Finding]], installation: Installation) -> DoctorDocument:
    """The same for programs."""
    return {
        "schema": 1,
        "looked_at": list(looked_at(installation)),
        "found": [finding_document(part, finding) for part, finding in found],
        "unread": list(installation.sight.unread),
    }
