"""A ClusterPolicy's operands: what NVIDIA's operator makes from the same resource and nodes.

Whole objects are compared, case by case, and of kinds that were not recorded the names. What differs on
purpose is in DIFFERENT with its reason: another difference fails, and so does one that has gone. So are the
states: which of them the resource switches on. The driver's objects (state-driver) have a test of their own.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec
import pytest

from driverforge_operator.crd.clusterpolicy import ClusterPolicySpec
from driverforge_operator.crd.read import read_spec
from driverforge_operator.plan.actions import Apply
from driverforge_operator.plan.whole import plan
from driverforge_operator.state.contents import Content, Source
from support.samples.operatorcases import CASES, POLICY_CASES, THEIRS, policy_spec, policy_state, result

RECORDED_KINDS = ("DaemonSet", "RuntimeClass", "Service", "ServiceMonitor")
ABSENT, ON, OFF = "absent", "on", "off"
DRIVER = "nvidia-driver"

Found = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Differs:
    """Paths that differ, in how many cases, and why; `defect` is its number in the list of NVIDIA's."""

    path: str
    cases: int
    why: str
    defect: int = 0


DIFFERENT = (
    Differs(
        path=r".*/metadata/labels/app\.kubernetes\.io~1managed-by",
        cases=48,
        why="our objects are found by it; pods keep what daemonsets.labels says",
    ),
    Differs(
        path=r"/DaemonSet .*/initContainers/\d/args/0",
        cases=46,
        why="our own words: which file is waited for, and which pod writes it",
    ),
    Differs(
        path=r"/DaemonSet nvidia-(operator|sandbox)-validator/.*/containers/0/args/0",
        cases=46,
        why="our own words",
    ),
    Differs(
        path=r"/DaemonSet nvidia-operator-validator/.*/initContainers/0/env/NODE_NAME",
        cases=46,
        why="a node that was left to its own driver gets its switch back when that is gone",
        defect=11,
    ),
    Differs(
        path=r"/DaemonSet .*/volumes/run-nvidia/hostPath/type",
        cases=46,
        why="a pod that starts before all others makes the folder instead of waiting for it",
    ),
    Differs(
        path=r"/(ServiceAccount|(Cluster)?Role(Binding)?) nvidia-device-plugin-mps-control-daemon",
        cases=48,
        why="its pods have the device plugin's account: nobody uses this one",
    ),
    Differs(
        path=r"/DaemonSet .*/metadata/labels/app",
        cases=1,
        why="what an object is found by is not a user's to change",
        defect=15,
    ),
    Differs(
        path=r"/DaemonSet .*/(~1available-configs/name|volumes/(available-configs|time-slicing|mps))",
        cases=2,
        why="a volume is not named as a user's ConfigMap, which may have dots",
        defect=10,
    ),
    Differs(
        path=r"/RuntimeClass(V1beta1)? nvidia(-cdi|-legacy)?",
        cases=1,
        why="node.k8s.io/v1 is served since Kubernetes 1.20",
    ),
    Differs(
        path=r"/DaemonSet nvidia-container-toolkit-daemonset(-crio|/spec/template/spec/affinity)",
        cases=1,
        why="each runtime has its own toolkit",
    ),
    Differs(
        path=r"/DaemonSet nvidia-container-toolkit-daemonset/.*/containerd-socket/hostPath/path",
        cases=1,
        why="the folder of the socket that RUNTIME_SOCKET names, not of the default one",
    ),
    Differs(
        path=r"/state state-dcgm-exporter",
        cases=47,
        why="a state is not off because the last one of its objects is",
        defect=16,
    ),
    Differs(
        path=r"/state pre-requisites",
        cases=1,
        why="NRI takes the RuntimeClasses away, and a state without objects is off",
    ),
)


def ours(case: str) -> Iterator[Found]:
    for action in plan(policy_state(case), THEIRS):
        if isinstance(action, Apply) and not action.ref.name.startswith(DRIVER):
            yield dict(action.document)


def compared(one: Found) -> Any:
    """An object as Kubernetes takes it: variables, mounts and volumes in any order, nothing that is empty."""
    if isinstance(one, dict):
        found = {key: compared(keyed(key, value)) for key, value in one.items()}
        # Go's zero values, but not a False that was written
        return {key: value for key, value in found.items() if value or value is False}
    return [compared(value) for value in one] if isinstance(one, list) else one


def keyed(field: str, value: Any) -> Any:
    key = {"env": "name", "volumes": "name", "volumeMounts": "mountPath"}.get(field)
    if key is None or not isinstance(value, list):
        return value
    assert len({one[key] for one in value}) == len(value), value
    return {one[key]: one for one in value}


def recorded(case: str) -> dict[str, Any]:
    """Objects, and of kinds that were not recorded the names."""
    found: dict[str, Any] = {}
    (index,) = result("clusterpolicy", case, "index.yaml")
    for line in index:
        kind, _, name = line.partition(" ")
        name = name.removeprefix("gpu-operator/")
        if not name.startswith(DRIVER):
            found[f"{kind} {name}"] = "there"
    for one in result("clusterpolicy", case, "objects.yaml"):
        if one and not one["metadata"]["name"].startswith(DRIVER):
            # a hash of Go structures
            one["metadata"].get("annotations", {}).pop("nvidia.com/last-applied-hash", None)
            found[f"{one['kind']} {one['metadata']['name']}"] = compared(one)
    return found


@cache
def differences(case: str) -> dict[str, tuple[Any, Any]]:
    """What differs in a case, ours first, by its path."""
    made = {
        f"{one['kind']} {one['metadata']['name']}": compared({**one, "apiVersion": ""})
        if one["kind"] in RECORDED_KINDS
        else "there"
        for one in ours(case)
    }
    states, theirs = our_states(case), recorded_states(case)
    # what has no row is off
    made |= {name: states.get(name, OFF) for name in {*states, *theirs}}
    return dict(between(made, recorded(case) | theirs))


def our_states(case: str) -> dict[str, str]:
    spec, problems = read_spec(ClusterPolicySpec, policy_spec(case))
    assert spec, problems
    return {f"state {one.state}": ON if one.enabled(spec) else OFF for one in THEIRS}


def recorded_states(case: str) -> dict[str, str]:
    """The recording has no pods: what is switched on is ready."""
    (found,) = result("clusterpolicy", case, "result.yaml")
    return {
        f"state {one['state']}": OFF if one["status"] == "disabled" else ON
        for one in found["states"]
        if one["state"] != "state-driver"
    }


def between(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            part = key.replace("/", "~1")
            yield from between(one.get(key, ABSENT), other.get(key, ABSENT), f"{path}/{part}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from between(first, second, f"{path}/{index}")
    elif one != other:
        yield path, (one, other)


@pytest.mark.parametrize("case", POLICY_CASES)
def test_objects_are_those_of_nvidias_operator(case: str) -> None:
    declared = [re.compile(one.path) for one in DIFFERENT]
    assert not [path for path in differences(case) if not any(one.fullmatch(path) for one in declared)]


@pytest.mark.parametrize("differs", DIFFERENT, ids=lambda one: one.why)
def test_every_difference_that_is_declared_is_there(differs: Differs) -> None:
    declared = re.compile(differs.path)
    found = Counter(case for case in POLICY_CASES for path in differences(case) if declared.fullmatch(path))
    assert len(found) == differs.cases


def test_states_are_those_of_nvidias_operator_in_its_order() -> None:
    facts = json.loads((CASES / "facts/states.json").read_text())
    assert sorted(facts) == POLICY_CASES
    for case, found in facts.items():
        (recording,) = result("clusterpolicy", case, "result.yaml")
        assert found["states"] == recording["states"]
        order = [one for one in recorded_states(case) if one in our_states(case)]
        assert order == list(our_states(case))


def test_pods_start_anew_where_their_configmap_holds_something_else() -> None:
    """Defect 23, for all operands; nobody else's pods do."""

    def templates(digest: str) -> dict[str, Any]:
        state = policy_state("device-plugin-config")
        content = Content(keys=("any",), digest=digest)
        around = replace(state.around, contents={Source(secret=False, name="time-slicing"): content})
        found = (one.document for one in plan(replace(state, around=around)) if isinstance(one, Apply))
        return {
            one["metadata"]["name"]: one["spec"]["template"] for one in found if one["kind"] == "DaemonSet"
        }

    before, after = templates("1"), templates("2")
    assert {name for name in before if before[name] != after[name]} == {
        "gpu-feature-discovery",
        "nvidia-device-plugin-daemonset",
        "nvidia-device-plugin-mps-control-daemon",
    }


def test_validators_get_a_default_workload_that_they_know() -> None:
    state = policy_state("sandbox-passthrough")
    wrong = {"enabled": True, "defaultWorkload": "vm-pass"}
    policies = {
        name: msgspec.structs.replace(one, spec={**one.spec, "sandboxWorkloads": wrong})
        for name, one in state.policies.items()
    }
    found = json.dumps(
        [one.document for one in plan(replace(state, policies=policies), THEIRS) if isinstance(one, Apply)]
    )
    assert '{"name": "DEFAULT_GPU_WORKLOAD_CONFIG", "value": "container"}' in found
    assert "vm-pass" not in found.replace("vm-passthrough", "")


@pytest.mark.parametrize("case", POLICY_CASES)
def test_a_workload_comes_after_what_its_pods_name(case: str) -> None:
    made = [one.document for one in plan(policy_state(case)) if isinstance(one, Apply)]
    for number, one in enumerate(made):
        if one["kind"] == "DaemonSet":
            account = one["spec"]["template"]["spec"]["serviceAccountName"]
            named = {(before["kind"], before["metadata"]["name"]) for before in made[:number]}
            assert ("ServiceAccount", account) in named
