"""What a driver's spec asks for and cannot have: the status names the field and what to write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from driverforge_core import nodekeys
from driverforge_operator.plan.actions import Apply, PatchNode, SetStatus
from driverforge_operator.plan.whole import plan
from driverforge_operator.state.contents import Content, Source
from driverforge_operator.state.kinds import CustomResource
from driverforge_operator.state.observed import State
from support.samples.operatorcases import driver_state, policy_state


def driver(case: str, **spec: Any) -> State:
    """A recorded case whose NVIDIADriver says more."""
    state = driver_state(case)
    found = state.drivers["demo"]
    return replace(state, drivers={"demo": more(found, **spec)})


def more(found: CustomResource, **spec: Any) -> CustomResource:
    return CustomResource(metadata=found.metadata, spec={**found.spec, **spec})


def side_cars(state: State) -> set[str]:
    """The containers that drivers' pods have."""
    objects = [one.document for one in plan(state) if isinstance(one, Apply) and "-driver" in one.ref.name]
    pods = [one["spec"]["template"]["spec"] for one in objects if one["kind"] == "DaemonSet"]
    return {container["name"] for pod in pods for container in pod["containers"]}


def told(state: State) -> str:
    """What is told of a spec of which nothing is rolled out."""
    actions = plan(state)
    assert not side_cars(state)
    (status,) = (one for one in actions if isinstance(one, SetStatus))
    return next(one.message for one in status.conditions if one.reason == "InvalidSpec" and one.message)


def gds(version: str) -> dict[str, Any]:
    return {"enabled": True, "repository": "r.example", "image": "nvidia-fs", "version": version}


@pytest.mark.parametrize("version", ["2.17.5", "v2.17.5", "2.20", "3.0.0-rc1", "sha256:0123"])
@pytest.mark.parametrize("modules", ["auto", "proprietary"])
def test_gds_that_needs_open_modules_names_the_field_that_counts(version: str, modules: str) -> None:
    """Defect 14: upstream's error names useOpenKernelModules, which it does not read any more."""
    asked = f"GDS {version} works with the open kernel modules only"
    found = told(driver("minimal", kernelModuleType=modules, gds=gds(version)))
    assert found == f"ubuntu22.04: spec.kernelModuleType: write open: {asked}"


def test_a_policys_gds_needs_open_modules_too() -> None:
    """Defect 14."""
    state = policy_state("default")
    policy = more(state.policies["cluster-policy"], gds=gds("2.29.4"))
    found = told(replace(state, policies={"cluster-policy": policy}))
    assert "spec.driver.kernelModuleType: write open: GDS 2.29.4" in found


@pytest.mark.parametrize(
    ("version", "modules"),
    [("2.17.4", "proprietary"), ("2.16.1", "auto"), ("latest", "auto"), ("2.29.4", "open")],
)
def test_other_gds_is_beside_any_modules(version: str, modules: str) -> None:
    assert "nvidia-fs-ctr" in side_cars(driver("minimal", kernelModuleType=modules, gds=gds(version)))


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"default": True, "nodeSelector": {"a": "b"}}, "spec.default"),
        ({"nodeSelector": {nodekeys.DRIVER_OWNER: "demo"}}, "spec.nodeSelector"),
    ],
)
def test_what_the_schemas_rules_refuse_is_refused_of_older_resources(spec: dict[str, Any], path: str) -> None:
    """And in a dump, which went past no API server."""
    assert told(driver("minimal", **spec)).startswith(f"ubuntu22.04: {path}: ")


def test_a_precompiled_driver_has_no_gds_in_a_dump_either() -> None:
    found = told(driver("precompiled-kernels", kernelModuleType="open", gds=gds("2.29.4")))
    assert "spec.usePrecompiled: precompiled drivers have no gds: leave out usePrecompiled or those" in found


def test_all_that_is_wrong_is_told_at_once() -> None:
    wrong = {"default": True, "nodeSelector": {"a": "b"}, "gds": gds("2.29.4")}
    assert told(driver("minimal", **wrong)) == (
        "ubuntu22.04: spec.default: it is for nodes that no other claims: leave out nodeSelector, or default"
        "; spec.kernelModuleType: write open: GDS 2.29.4 works with the open kernel modules only"
    )


def test_a_name_that_no_label_takes_is_told_and_the_nodes_keep_theirs() -> None:
    """Nodes say by a label whose driver they have; with this name no label of theirs could be written."""
    state = driver_state("minimal")
    found = state.drivers["demo"]
    name = "d" * 64
    long = CustomResource(metadata=replaced(found.metadata, name=name), spec=found.spec)
    actions = plan(replace(state, drivers={name: long}))
    (status,) = (one for one in actions if isinstance(one, SetStatus))
    assert [(one.reason, one.message) for one in status.conditions if one.message] == [
        ("InvalidSpec", "metadata.name: it has 64 characters, and nodes name it by a label: write 63 at most")
    ]
    values = [value for one in actions if isinstance(one, PatchNode) for value in one.labels.values()]
    assert "true" in values
    assert name not in values


def test_a_part_of_nodes_that_is_no_number_is_for_the_server_to_refuse() -> None:
    state = policy_state("default")
    policy = state.policies["cluster-policy"]
    daemonsets = {**policy.spec["daemonsets"], "rollingUpdate": {"maxUnavailable": "²"}}
    actions = plan(replace(state, policies={"cluster-policy": more(policy, daemonsets=daemonsets)}))
    strategies = [
        one.document["spec"]["updateStrategy"].get("rollingUpdate")
        for one in actions
        if isinstance(one, Apply) and one.ref.kind == "DaemonSet"
    ]
    assert {"maxUnavailable": "²"} in strategies


def test_config_maps_that_make_one_volume_name_have_two_volumes() -> None:
    state = policy_state("default")
    policy = state.policies["cluster-policy"]
    driver = {**policy.spec["driver"], "repoConfig": {"configMapName": "a.b"}, "certConfig": {"name": "a-b"}}
    driver["kernelModuleConfig"] = {"name": "a-b"}
    contents = {
        Source(secret=False, name=name): Content(keys=(f"{name}.conf",), digest="") for name in ("a.b", "a-b")
    }
    around = replace(state.around, contents=contents)
    given = {"cluster-policy": more(policy, driver=driver)}
    (pod,) = (
        one.document["spec"]["template"]["spec"]
        for one in plan(replace(state, policies=given, around=around))
        if isinstance(one, Apply) and one.ref.name == "nvidia-driver-daemonset-ubuntu22.04"
    )
    names = [one["name"] for one in pod["volumes"]]
    assert len(names) == len(set(names))
    made = {one["name"]: one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one}
    (main,) = (one for one in pod["containers"] if one["name"] == "nvidia-driver-ctr")
    mounted = {one["mountPath"]: made.get(one["name"]) for one in main["volumeMounts"]}
    assert mounted["/etc/apt/sources.list.d/a.b.conf"] == "a.b"
    assert mounted["/usr/local/share/ca-certificates/a-b.conf"] == "a-b"
    assert mounted["/drivers/a-b.conf"] == "a-b"
