"""The table of operands and their manifests say the same, and what a ClusterPolicy leaves open is told."""

from __future__ import annotations

import copy
from dataclasses import replace
from importlib.resources import files
from typing import Any

import msgspec
import pytest

from driverforge_core import nodekeys
from driverforge_operator import operands
from driverforge_operator.operands.manifest import containers, manifest, pod
from driverforge_operator.operands.setting import Setting
from driverforge_operator.operands.table import ENVIRONMENT, OPERANDS, Operand
from driverforge_operator.plan.actions import Apply, Delete
from driverforge_operator.plan.whole import plan
from driverforge_operator.state.kinds import KIND_OF, CustomResource
from driverforge_operator.state.surroundings import Surroundings
from driverforge_operator.state.whole import State
from support.samples.operatorcases import policy_state

# not a state's: the driver's, which has a module of its own, and parts that states share
SHARED = {"account", "config-manager", "constraints", "driver", "driver-startup-probe"}
BY_STATE = [pytest.param(one, id=one.state) for one in OPERANDS]


def workloads(one: Operand) -> list[dict[str, Any]]:
    return [found for found in manifest(one.manifest) if found["kind"] == "DaemonSet"]


def changed(case: str, **fields: Any) -> State:
    """A case with other fields in its ClusterPolicy."""
    state = policy_state(case)
    policy = state.policies["cluster-policy"]
    spec = copy.deepcopy(policy.spec)
    for name, value in fields.items():
        spec[name] = {**spec.get(name, {}), **value}
    policies = {"cluster-policy": CustomResource(metadata=policy.metadata, spec=spec)}
    return replace(state, policies=policies)


def applied(state: State) -> dict[str, dict[str, Any]]:
    return {str(one.ref): dict(one.document) for one in plan(state) if isinstance(one, Apply)}


def test_an_operand_is_one_manifest_and_one_row() -> None:
    folder = files(operands).joinpath("manifests")
    there = {path.name.removesuffix(".yaml") for path in folder.iterdir()}
    rows = [one.manifest for one in OPERANDS]
    assert sorted(rows) == sorted(there - SHARED)


@pytest.mark.parametrize("one", BY_STATE)
def test_a_row_says_what_its_manifest_says(one: Operand) -> None:
    for workload in workloads(one):
        assert pod(workload)["nodeSelector"][nodekeys.DEPLOY + one.switch] == "true"
        assert one.gpu in ("", *(found["name"] for found in containers(workload)))
        assert ("runtimeClassName" in pod(workload)) == bool(one.gpu)
        waits = " ".join(str(found.get("args")) for found in pod(workload).get("initContainers", ()))
        assert one.gate in waits.replace("'nvidia-validator'", "driver-ready")
        for found in containers(workload):
            assert found["image"] in ENVIRONMENT
        if one.field:
            assert pod(workload)["containers"][0]["image"] == one.field


@pytest.mark.parametrize("one", BY_STATE)
def test_every_kind_is_one_that_the_operator_applies(one: Operand) -> None:
    for found in manifest(one.manifest):
        assert (found["apiVersion"], found["kind"]) in KIND_OF


@pytest.mark.parametrize("path", ENVIRONMENT)
def test_a_manifests_images_are_parts_of_the_spec(path: str) -> None:
    # a spelling that the models do not have would be an image that nobody names
    from driverforge_operator.crd.clusterpolicy import ClusterPolicySpec

    model: Any = ClusterPolicySpec
    for part in path.split("."):
        (field,) = (one for one in model.model_fields.values() if one.alias == part)
        model = next(one for one in (*getattr(field.annotation, "__args__", ()), field.annotation))
    assert "repository" in model.model_fields


def test_an_image_that_the_policy_does_not_name_comes_from_the_environment() -> None:
    unnamed = {"repository": None, "image": None, "version": None}
    state = changed("default", toolkit=unnamed)
    told = applied(state)
    assert "DaemonSet gpu-operator/nvidia-container-toolkit-daemonset" not in told
    assert "DaemonSet gpu-operator/nvidia-device-plugin-daemonset" in told
    known = replace(
        state, around=Surroundings(environment={"CONTAINER_TOOLKIT_IMAGE": "r.example/toolkit:1"})
    )
    workload = applied(known)["DaemonSet gpu-operator/nvidia-container-toolkit-daemonset"]
    assert pod(workload)["containers"][0]["image"] == "r.example/toolkit:1"


def test_what_runs_stays_while_an_image_is_missing() -> None:
    running = [one for one in plan(policy_state("default")) if isinstance(one, Apply)]
    state = changed("default", toolkit={"repository": None, "version": None, "image": None})
    after = replace(state, objects={one.ref: one.document for one in running})
    assert not [one for one in plan(after) if isinstance(one, Delete | Apply)]


def test_a_state_that_is_switched_off_goes() -> None:
    running = [one for one in plan(policy_state("default")) if isinstance(one, Apply)]
    state = changed("default", gfd={"enabled": False})
    after = replace(state, objects={one.ref: one.document for one in running})
    gone = {str(one.ref) for one in plan(after) if isinstance(one, Delete)}
    assert "DaemonSet gpu-operator/gpu-feature-discovery" in gone
    assert all("gpu-feature-discovery" in one for one in gone)


def test_each_runtime_has_its_toolkit_and_all_share_the_rest() -> None:
    told = applied(policy_state("mixed-runtimes"))
    usual = pod(told["DaemonSet gpu-operator/nvidia-container-toolkit-daemonset"])
    crio = pod(told["DaemonSet gpu-operator/nvidia-container-toolkit-daemonset-crio"])
    for found, runtime in ((usual, "containerd"), (crio, "crio")):
        assert {"name": "RUNTIME", "value": runtime} in found["containers"][0]["env"]
    required = usual["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": nodekeys.RUNTIME, "operator": "NotIn", "values": ["crio"]}]
    assert crio["nodeSelector"][nodekeys.RUNTIME] == "crio"
    assert not [name for name in told if name.endswith("-crio") and "toolkit" not in name]


def test_where_crio_injects_by_its_hook_each_runtime_has_all_that_uses_gpus() -> None:
    told = applied(changed("mixed-runtimes", cdi={"enabled": False}))
    assert pod(told["DaemonSet gpu-operator/gpu-feature-discovery"])["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in pod(told["DaemonSet gpu-operator/gpu-feature-discovery-crio"])


def test_pods_keep_what_their_daemonset_finds_them_by() -> None:
    labels = {"app": "other", "name": "other", "team": "infra"}
    told = applied(changed("sandbox-kata", daemonsets={"labels": labels}))
    for name, one in told.items():
        if name.startswith("DaemonSet"):
            found = one["spec"]["template"]["metadata"]["labels"]
            assert found.items() >= one["spec"]["selector"]["matchLabels"].items(), name
            assert found["team"] == "infra"


def test_a_vgpu_host_driver_is_not_put_on_another_system() -> None:
    state = policy_state("sandbox-vgpu")
    (node,) = state.nodes.values()
    second = replace(node, name="second", labels={**node.labels, nodekeys.OS_VERSION: "24.04"})
    both = replace(state, nodes={node.name: node, "second": second})
    assert "DaemonSet gpu-operator/nvidia-vgpu-manager-daemonset" in applied(state)
    assert "DaemonSet gpu-operator/nvidia-vgpu-manager-daemonset" not in applied(both)


def test_a_setting_has_an_image_for_what_was_not_written() -> None:
    from driverforge_operator.crd.clusterpolicy import ClusterPolicySpec

    spec = ClusterPolicySpec.model_validate_json(
        msgspec.json.encode({**changed("default").policies["cluster-policy"].spec, "vfioManager": None})
    )
    setting = Setting(namespace="n", spec=spec, runtime="containerd", oses=(), gpus=True, environment={})
    assert setting.image("vfioManager.driverManager").repository is None
